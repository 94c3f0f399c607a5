/* The model: what one or several captures say, summed. Everything that is shown is made from this.
 *
 * The structs are public for reading; only src/profile writes them. Indices are dense, so plain arrays go along with
 * them. Index 0 of frames and stacks is 'none': frames[0] is all empty, stacks[0] is the empty stack. */
#ifndef STROBE_PROFILE_PROFILE_H
#define STROBE_PROFILE_PROFILE_H

#include "base/series.h"
#include "base/status.h"
#include "capture/reader.h"
#include "capture/records.h"

/* The numbers are those of enum capture_measure_id. */
enum measure {
    MEASURE_SAMPLES,
    MEASURE_WALL_NS,
    MEASURE_CPU_NS, /* python + native + kernel where the parts are known */
    MEASURE_CPU_PYTHON_NS,
    MEASURE_CPU_NATIVE_NS,
    MEASURE_CPU_KERNEL_NS,
    MEASURE_WAIT_NS,     /* wall time without CPU */
    MEASURE_GIL_WAIT_NS, /* the part of it that waited for the GIL */
    MEASURE_ALLOC_BYTES,
    MEASURE_ALLOC_COUNT,
    MEASURE_PEAK_BYTES,
    MEASURE_LIVE_BYTES,
    MEASURE_PYTHON_BYTES, /* the part of ALLOC_BYTES that Python's own allocators gave */
    MEASURE_COPY_BYTES,
    MEASURE_GPU_NS,
    MEASURE_GPU_BYTES,
    MEASURE_TEMPORARY_BYTES, /* the part of ALLOC_BYTES that was freed before the stack allocated again */
    MEASURE_LIVE_COUNT,
    MEASURE_SHOWN, /* those before are to be shown; those that follow say how far these may be trusted */
    /* Of the sampling: squares of standard deviations, in KiB²; profile_margin makes them something to be shown. */
    MEASURE_ALLOC_VARIANCE = MEASURE_SHOWN,
    MEASURE_PEAK_VARIANCE,
    MEASURE_LIVE_VARIANCE,
    MEASURE_COPY_VARIANCE,
    MEASURE_COUNT
};

enum measure_unit { UNIT_COUNT, UNIT_NS, UNIT_BYTES };

enum measure_unit measure_unit(enum measure measure);
/* Its name without a unit, such as "cpu_python" or "alloc_count". */
const char *measure_name(enum measure measure);
/* The word a user asks for it with: "python", "alloc". */
const char *measure_word(enum measure measure);
/* By either of them, of those that are shown; false: there is none. */
bool measure_find(const char *name, enum measure *measure);

/* Text here is NUL-terminated UTF-8, whatever the target's bytes were: what is none became \xNN. Equal texts are
 * the same pointer within a profile. "" when there is none. */
struct profile_frame {
    enum capture_frame_kind kind;
    const char *function; /* co_name */
    const char *qualname; /* co_qualname; co_name where the target's Python (before 3.11) has none */
    const char *file;     /* co_filename */
    int32_t line;         /* -1: unknown, as all of these */
    int32_t end_line;
    int32_t column;
    int32_t end_column;
    int32_t first_line; /* co_firstlineno */
    bool is_library;    /* not user code: standard library, site-packages, <frozen …>, or no Python frame at all */
};

/* A call path; its parent is the caller's and has a lower index. */
struct profile_stack {
    uint32_t parent; /* 0: the frame is outermost */
    uint32_t frame;
    uint32_t depth; /* frames in it; 0 for the empty stack */
    bool has_python;
};

/* The memory of a process, as itself and the kernel count it: exact, where the measures are sampled. */
struct profile_memory {
    bool is_taken;
    uint64_t footprint_bytes; /* at the end */
    uint64_t peak_bytes;      /* the most that it was */
    uint64_t peak_ns;         /* when, on the profile's time line */
    uint64_t inherited_bytes; /* what a forked process began with */
    uint64_t stride_bytes;    /* the mean number of bytes between two samples */
    uint64_t lost_records;    /* what the measures lack */
    uint64_t resident_bytes;  /* the most that was seen in RAM, of no file; 0: it was not looked at */
    struct series timeline;   /* of the footprint, on the profile's time line */
};

struct profile_process {
    int32_t pid;
    int32_t parent_pid; /* 0: not known */
    const char **command;
    size_t command_count;
    uint32_t python_version; /* PY_VERSION_HEX; 0: not known */
    bool free_threaded;
    enum capture_mode mode;
    enum capture_origin origin;
    double rate_hz;
    uint64_t start_unix_ns;
    uint64_t start_ns;      /* on the time line of the samples */
    uint64_t elapsed_ns;    /* how long it was sampled */
    uint64_t python_end_ns; /* when a thread was last seen in Python code, on the profile's time line */
    bool ended;             /* before sampling did */
    int32_t wait_status;    /* as wait(2) gives it; -1: not known */
    struct capture_counters counters;
    struct profile_memory memory;
    uint32_t taken; /* bit by measure: profile_process_has */
};

struct profile_thread {
    uint32_t process; /* index */
    uint64_t native_id;
    uint64_t thread_id;
    int64_t interpreter; /* -1: none */
    const char *name;    /* "" when it has none */
    bool has_cpu;        /* cpu_ns was taken */
    uint64_t cpu_ns;     /* of the thread's own CPU clock, while it was sampled */
};

/* What a thread did with a stack. Its measures: profile_value. */
struct profile_entry {
    uint32_t thread;
    uint32_t stack;
};

struct profile_sample {
    uint64_t time_ns; /* since the profile's start */
    uint64_t weight_ns;
    uint32_t thread;
    uint32_t stack;
    enum capture_run run : 8;
    enum capture_gil gil : 8;
    bool collecting;
};

struct profile_fact {
    const char *key;
    const char *value;
};

struct profile {
    struct profile_frame *frames; /* [0] is 'none' */
    size_t frame_count;
    struct profile_stack *stacks; /* [0] is the empty stack */
    size_t stack_count;
    struct profile_process *processes; /* [0] is the one that strobe was asked for */
    size_t process_count;
    struct profile_thread *threads; /* in the order of their first appearance */
    size_t thread_count;
    struct profile_entry *entries; /* each thread × stack once */
    size_t entry_count;
    uint64_t *columns[MEASURE_COUNT]; /* columns[measure][entry]; NULL when the measure was not taken */
    struct profile_sample *samples;   /* by time; only when asked for, else NULL */
    size_t sample_count;
    bool samples_cut; /* more than are kept were there */
    struct profile_fact *facts;
    size_t fact_count;

    uint64_t start_unix_ns;           /* of the first process */
    uint64_t elapsed_ns;              /* from the first process's start to the last thing seen */
    struct capture_counters counters; /* of all processes */
    struct capture_damage damage;     /* of the captures it came from; ended: all of them were whole */

    struct profile_builder *builder; /* private */
};

/* An empty profile; NULL when there is no memory. */
struct profile *profile_new(void);
void profile_free(struct profile *profile);

struct profile_load_options {
    bool without_idle;  /* leave out the samples of threads that did not run */
    bool with_samples;  /* keep the samples in their order, too */
    size_t max_samples; /* 0: 50,000,000 */
};

/* Adds what a capture holds; adding several merges them: their processes and threads stand side by side, equal frames
 * and stacks are one. NULL options: no samples. STATUS_DAMAGED: as capture_read; all that could be read is in. After
 * STATUS_FAILED (no memory, no such file) the profile can only be freed. */
enum status profile_add_capture(struct profile *profile, const char *path, const struct profile_load_options *options,
                                struct error *error) MUST_USE;
enum status profile_add_capture_bytes(struct profile *profile, const uint8_t *bytes, size_t size_bytes,
                                      const struct profile_load_options *options, struct error *error) MUST_USE;

bool profile_has(const struct profile *profile, enum measure measure);
/* Whether it was taken of this process, where others may be in the same profile. */
bool profile_process_has(const struct profile *profile, uint32_t process, enum measure measure);
/* 0 when the measure was not taken: ask profile_has. */
uint64_t profile_value(const struct profile *profile, size_t entry, enum measure measure);
uint64_t profile_total(const struct profile *profile, enum measure measure);
/* The measure that says how far this one may be trusted; MEASURE_COUNT where there is none. */
enum measure measure_variance(enum measure measure);
/* How far a sum of this measure, whose row is `row`, may be from the truth in 19 of 20 cases, by the sampling; 0 where
 * it is exact or nothing is known. */
uint64_t profile_margin(const uint64_t row[MEASURE_COUNT], enum measure measure);
/* What a format that knows only one weight shows: CPU time where its parts are known, else wall time, else CPU time,
 * else samples, else allocated bytes, else waiting. */
enum measure profile_main_measure(const struct profile *profile);

#endif
