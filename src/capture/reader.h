/* Reads a capture from its beginning to its end, through callbacks. Every byte of it is taken for hostile. */
#ifndef STROBE_CAPTURE_READER_H
#define STROBE_CAPTURE_READER_H

#include "base/status.h"
#include "capture/records.h"

/* Told what the capture holds, in its order. Any callback may be NULL; one that does not return STATUS_OK ends the
 * reading with that status. Ids of strings, frames and stacks ascend without a gap from 1 in each epoch, whatever the
 * file's own numbers are, and only ids that were told before are ever referred to: plain arrays can hold them.
 * Numbers of processes and threads are the file's own and may be any; a thread's process was told before it, and
 * samples come only from threads that were told. What is pointed to is borrowed for the call. */
struct capture_visitor {
    void *context;
    /* All ids of strings, frames and stacks told so far are void. Called before the first, too. */
    enum status (*epoch)(void *context, uint32_t epoch);
    enum status (*fact)(void *context, struct capture_text key, struct capture_text value);
    enum status (*string)(void *context, uint32_t id, struct capture_text text);
    enum status (*frame)(void *context, uint32_t id, const struct capture_frame *frame);
    enum status (*stack)(void *context, uint32_t id, uint32_t parent, uint32_t frame);
    /* A number that was told before: the same one, told again or brought up to date. */
    enum status (*process)(void *context, const struct capture_process *process);
    enum status (*process_end)(void *context, uint32_t process, uint64_t time_ns, int32_t wait_status);
    enum status (*counters)(void *context, uint32_t process, const struct capture_counters *counters);
    enum status (*thread)(void *context, uint32_t id, const struct capture_thread *thread);
    enum status (*thread_cpu)(void *context, uint32_t id, uint64_t cpu_ns);
    enum status (*thread_end)(void *context, uint32_t id, uint64_t time_ns);
    enum status (*sample)(void *context, const struct capture_sample *sample);
    enum status (*event)(void *context, const struct capture_event *event);
    /* Their process was told before. */
    enum status (*change)(void *context, const struct capture_change *change);
    enum status (*footprint)(void *context, const struct capture_footprint *memory);
};

/* What is missing from a capture. All zero and `ended` set: nothing. */
struct capture_damage {
    bool ended;          /* the mark of a whole capture is there; without it strobe died, or the file was cut */
    uint64_t lost_bytes; /* of the file, that could not be read */
    uint64_t
        lost_chunks; /* that should have been between or before those read; what was cut off the end is not known */
    uint64_t lost_records; /* read, but broken, or speaking of what was lost */
};

/* STATUS_DAMAGED when anything is missing: all that could be read was told, also from behind the damage, `damage` says
 * what was not, and `error` has the words. Nothing is told of a file that is no capture, or one of a later,
 * incompatible version. STATUS_FAILED when it cannot be opened. `damage` may be NULL. */
enum status capture_read(const char *path, const struct capture_visitor *visitor, struct capture_damage *damage,
                         struct error *error) MUST_USE;
enum status capture_read_bytes(const uint8_t *bytes, size_t size_bytes, const struct capture_visitor *visitor,
                               struct capture_damage *damage, struct error *error) MUST_USE;

#endif
