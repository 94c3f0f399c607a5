/* Writes a capture. It is written in place under its final name, append-only and in chunks that stand for themselves:
 * a capture must survive the death of strobe, so there is no moment at which it would be renamed into being.
 *
 * One thread at a time. Memory is bounded: when a table of what was interned passes its limit, the writer starts a new
 * *epoch* after the next sample: all ids of strings, frames and stacks are void (those of processes and threads stay),
 * and capture_writer_epoch returns another number. So the caller, between samples:
 *
 *     if (capture_writer_epoch(writer) != my_epoch)  forget every remembered string, frame and stack id
 *     intern strings → frames → the stack, outermost frame first → capture_write_sample
 *
 * An epoch never ends between two interning calls, only inside capture_write_sample, capture_write_event,
 * capture_write_change, capture_write_footprint, capture_writer_flush and capture_writer_start_epoch.
 *
 * The first failure to write (a full disk) is final: what was written so far stays readable, and every later call
 * returns the same status at once. */
#ifndef STROBE_CAPTURE_WRITER_H
#define STROBE_CAPTURE_WRITER_H

#include "base/status.h"
#include "capture/records.h"

struct capture_writer;

/* Zero means the default, in each. */
struct capture_writer_options {
    uint64_t tick_ns;         /* the resolution of times and weights (sums stay exact to a tick); see capture_tick_ns */
    uint64_t flush_period_ns; /* the longest that samples stay unwritten: 1 s */
    size_t chunk_bytes;       /* a chunk is written when it has grown to this before: 64 KiB */
    uint32_t max_strings;     /* of an epoch: 1 << 16 */
    uint32_t max_frames;      /* 1 << 16 */
    uint32_t max_stacks;      /* 1 << 18 */
    int compression_level;    /* zstd's: 1 */
    bool in_background; /* compress and write in a thread, which takes no signals, so that samples need not wait */
};

/* A resolution that suits a rate: fine enough to be of no consequence, coarse enough that jitter does not fill the
 * file. */
uint64_t capture_tick_ns(double rate_hz);

/* Creates `path`; what a file has in it already stays until the first record. NULL options are all defaults.
 * STATUS_FAILED also when another writer has the file open. */
enum status capture_writer_open(const char *path, const struct capture_writer_options *options,
                                struct capture_writer **writer, struct error *error) MUST_USE;
/* Writes to a descriptor, which the writer owns from then on, also when it fails. */
enum status capture_writer_open_descriptor(int descriptor, const struct capture_writer_options *options,
                                           struct capture_writer **writer, struct error *error) MUST_USE;
/* Writes what is left and the mark of a whole capture, and frees the writer in any case. NULL is fine. */
enum status capture_writer_close(struct capture_writer *writer, struct error *error) MUST_USE;
/* Frees the writer and writes nothing more than it has begun to; also in a forked child. NULL is fine. */
void capture_writer_abandon(struct capture_writer *writer);

/* Writes what is buffered. `now_ns` is CLOCK_MONOTONIC: does nothing until the flush period is over; UINT64_MAX
 * always writes, and waits until it is done. Samples themselves call it too, with their time; a loop that may stay
 * without samples calls it. */
enum status capture_writer_flush(struct capture_writer *writer, uint64_t now_ns) MUST_USE;
uint32_t capture_writer_epoch(const struct capture_writer *writer);
/* Voids all ids of strings, frames and stacks now. */
enum status capture_writer_start_epoch(struct capture_writer *writer) MUST_USE;
/* The words of the failure that ended it; status STATUS_OK while it works. */
const struct error *capture_writer_error(const struct capture_writer *writer);
/* Bytes that reached the file. */
uint64_t capture_writer_size_bytes(const struct capture_writer *writer);

/* All that follows returns STATUS_NOT_FOUND, and writes nothing, when it is given an id that was never given out,
 * is of an epoch with more of them, or of a process or thread that ended. */

/* A fact about the capture as a whole ("strobe" → "0.1.0"). */
enum status capture_write_fact(struct capture_writer *writer, const char *key, const char *value) MUST_USE;

/* The same content gives the same id (from 1; 0 for no text) within an epoch. STATUS_LIMIT when a table has reached
 * twice its limit since the epoch began, which only one enormous stack can do: start an epoch and intern again, and if
 * that fails too, write the sample with the part of the stack that could be interned. */
enum status capture_intern_string(struct capture_writer *writer, const char *text, size_t size_bytes,
                                  uint32_t *id) MUST_USE;
enum status capture_intern_frame(struct capture_writer *writer, const struct capture_frame *frame,
                                 uint32_t *id) MUST_USE;
/* `parent` is the caller's stack (0: the frame is the outermost). */
enum status capture_intern_stack(struct capture_writer *writer, uint32_t parent, uint32_t frame, uint32_t *id) MUST_USE;

/* Everything it points to is copied. Adding a process again replaces what is known of it (after an exec). */
enum status capture_add_process(struct capture_writer *writer, const struct capture_process *process) MUST_USE;
/* Ends its threads too. wait_status: as wait(2) gives it, or -1 when it is not known or sampling ended before the
 * process. */
enum status capture_end_process(struct capture_writer *writer, uint32_t process, uint64_t time_ns,
                                int32_t wait_status) MUST_USE;
enum status capture_write_counters(struct capture_writer *writer, uint32_t process,
                                   const struct capture_counters *counters) MUST_USE;

/* *id is a number that no other thread of this capture has or will have, in any epoch. */
enum status capture_add_thread(struct capture_writer *writer, const struct capture_thread *thread,
                               uint32_t *id) MUST_USE;
/* The thread is now called otherwise, or more is known of it. */
enum status capture_update_thread(struct capture_writer *writer, uint32_t id,
                                  const struct capture_thread *thread) MUST_USE;
/* The CPU time of a thread since sampling it began; the last one counts. */
enum status capture_write_thread_cpu(struct capture_writer *writer, uint32_t id, uint64_t cpu_ns) MUST_USE;
/* No sample of it follows. The writer forgets it. */
enum status capture_end_thread(struct capture_writer *writer, uint32_t id, uint64_t time_ns) MUST_USE;

/* Times need not ascend, but what ascends is smaller in the file. Samples of several threads taken in one look share a
 * time. */
enum status capture_write_sample(struct capture_writer *writer, const struct capture_sample *sample) MUST_USE;
enum status capture_write_event(struct capture_writer *writer, const struct capture_event *event) MUST_USE;
enum status capture_write_change(struct capture_writer *writer, const struct capture_change *change) MUST_USE;
enum status capture_write_footprint(struct capture_writer *writer, const struct capture_footprint *memory) MUST_USE;

#endif
