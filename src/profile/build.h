/* Making a profile by hand: what profile_add_capture uses, and tests that want a small known profile. */
#ifndef STROBE_PROFILE_BUILD_H
#define STROBE_PROFILE_BUILD_H

#include "profile/profile.h"

/* Adds to a profile; all texts are copied and made safe. Equal frames, stacks and entries get one index. They fail only
 * for want of memory. Indices into the profile's arrays; the arrays move as they grow. */
struct profile_frame_key {
    enum capture_frame_kind kind;
    struct capture_text function;
    struct capture_text qualname;
    struct capture_text file;
    int32_t line;
    int32_t end_line;
    int32_t column;
    int32_t end_column;
    int32_t first_line;
};

/* The text, NUL-terminated; the same pointer for the same text. */
enum status profile_intern_text(struct profile *profile, struct capture_text text, const char **interned) MUST_USE;
enum status profile_intern_frame(struct profile *profile, const struct profile_frame_key *key,
                                 uint32_t *frame) MUST_USE;
enum status profile_intern_stack(struct profile *profile, uint32_t parent, uint32_t frame, uint32_t *stack) MUST_USE;
/* Always a new one. `process->process` is ignored. */
enum status profile_append_process(struct profile *profile, const struct capture_process *process,
                                   uint32_t *index) MUST_USE;
enum status profile_append_thread(struct profile *profile, const struct capture_thread *thread,
                                  uint32_t *index) MUST_USE;
/* Adds to the measure of thread × stack; the measure is 'taken' from then on, in all entries. Sums stop at UINT64_MAX.
 */
enum status profile_add_value(struct profile *profile, uint32_t thread, uint32_t stack, enum measure measure,
                              uint64_t amount) MUST_USE;
/* Adds to, or takes from, a measure of a process × stack that no thread has for itself; it is counted with the first
 * thread of the process that allocated there. */
enum status profile_add_difference(struct profile *profile, uint32_t process, uint32_t stack, enum measure measure,
                                   int64_t amount) MUST_USE;
/* What a process's memory is; times are on the profile's time line. */
enum status profile_set_footprint(struct profile *profile, uint32_t process,
                                  const struct capture_footprint *memory) MUST_USE;
/* Adds all that a sample says to the measures (samples, wall, CPU, wait, by the mode of its process) and, when
 * keep, to profile->samples. Its time is on the profile's time line. */
enum status profile_add_sample(struct profile *profile, const struct capture_sample *sample, bool keep) MUST_USE;

#endif
