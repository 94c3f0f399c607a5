/* What a profile needs only while it is made. */
#ifndef STROBE_PROFILE_BUILDER_H
#define STROBE_PROFILE_BUILDER_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/digest.h"
#include "profile/build.h"
#include "profile/held.h"

/* The memory of a process that may exec, and be one program after the other. */
struct memory_program {
    uint64_t exec_count; /* of the present one; */
    uint64_t peak_bytes; /* its highest, which the columns are of */
    uint64_t lost_records;
    uint64_t kept_peak_bytes; /* the highest of all before it, which kept_peaks are of */
    uint64_t lost_before;
};

enum { PEAK_MEASURES = 2 };

struct profile_builder {
    struct arena arena;      /* texts, and lists of them */
    struct digest_map texts; /* content -> index in text_list + 1 */
    const char **text_list;
    size_t text_count, text_capacity;
    struct buffer safe;                        /* a text being made safe */
    struct digest_map frames, stacks, entries; /* -> index; entries + 1 */
    size_t frame_capacity, stack_capacity, entry_capacity;
    size_t process_capacity, thread_capacity, sample_capacity, fact_capacity;
    bool samples_unsorted;
    /* Of all processes together, each once: thousands of them tell of the same few. */
    const char **libraries;
    size_t library_count, library_capacity;
    struct digest_map library_index; /* -> 1 */
    struct digest_map pids;          /* of the processes -> 1 */
    struct digest_map first_threads; /* process -> its first thread + 1 */
    struct digest_map allocators;    /* process × stack -> thread + 1 */
    struct held_watch held;
    struct memory_program *programs; /* by process; fewer where the others have none */
    size_t program_count, program_capacity;
    uint64_t program_steps;              /* that their beginnings took */
    uint64_t *kept_peaks[PEAK_MEASURES]; /* by entry; fewer where the others are 0 */
    size_t kept_count;
};

/* Texts here are interned ones; qualname may be "". */
enum status builder_intern_frame(struct profile *profile, const struct profile_frame *like, uint32_t *index) MUST_USE;
enum status builder_set_process(struct profile *profile, uint32_t index,
                                const struct capture_process *process) MUST_USE;
enum status builder_set_thread(struct profile *profile, uint32_t index, const struct capture_thread *thread) MUST_USE;
enum status builder_append_fact(struct profile *profile, struct capture_text key, struct capture_text value) MUST_USE;
/* The entry of a thread × stack, where the measure is taken from now on. */
enum status builder_find_entry(struct profile *profile, uint32_t thread, uint32_t stack, enum measure measure,
                               size_t *entry) MUST_USE;
/* The measure was taken of a process, though there may be nothing of it. */
enum status builder_take_measure(struct profile *profile, uint32_t process, enum measure measure) MUST_USE;
/* This thread has allocated there; the first one is remembered. */
enum status builder_note_allocator(struct profile *profile, uint32_t thread, uint32_t stack) MUST_USE;
/* As profile_add_sample; `is_part`: of the same look at the thread as the sample before. */
enum status builder_add_sample(struct profile *profile, const struct capture_sample *sample, bool keep,
                               bool is_part) MUST_USE;
void builder_finish_memory(struct profile *profile);
/* Something of a process was seen at this time of the profile's time line. */
void builder_note_time(struct profile *profile, uint32_t process, uint64_t time_ns);
/* A thread was seen with this stack. */
void builder_note_look(struct profile *profile, uint32_t process, uint32_t stack, uint64_t time_ns);
/* Sums up what is known per process, sorts the samples, and tells library code by all that is known by now. */
void builder_finish(struct profile *profile);

/* Room for one more item in an array of `count`. */
enum status builder_reserve(void **array, size_t count, size_t *capacity, size_t item_bytes) MUST_USE;
uint64_t saturating_add(uint64_t left, uint64_t right);

/* The key of builder.pids. */
struct digest builder_pid_key(int32_t pid);

/* Whether a Python frame is not of the user's code, as far as its file and name tell. */
bool library_has_frame(const struct profile *profile, const struct profile_frame *frame);
/* Whether interpreters are started with code in a string (-c) by other processes, and not by the user. */
bool library_runs_strings(const struct profile *profile);

#endif
