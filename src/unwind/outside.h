/* Frames outside of the chunks of the data stack: generators, coroutines, and what the interpreter puts on the C stack.
 * Private to the walk: outside_frames.c reads them, outside_rules.c says what can have run what,
 * outside_timing.c what can be of two calls, outside_waits.c who awaits whom, outside_judge.c what can be believed of
 * it, outside_walk.c (walk.h's outside_*) puts it together. */
#ifndef STROBE_UNWIND_OUTSIDE_H
#define STROBE_UNWIND_OUTSIDE_H

#include "unwind/walk.h"

/* The frame at the address as it was read for this look; NULL when it was not. */
struct outside_frame *outside_find(const struct stack_tracker *tracker, remote_addr address);
/* A frame outside of the chunk: read along with the copy, or on its own: *late is set. */
enum status outside_read(const struct walk *walk, remote_addr address, struct frame *frame, uint64_t *executable,
                         bool *late) MUST_USE;
/* Reads what frame->place says into frame->bytes, without what ran it: what it is to be believed for is read again with
 * all that it belongs to (outside_confirm). Of many at one attempt that lie close together, all but the first are of
 * the instant at which the page was read. */
enum status outside_read_late(struct stack_tracker *tracker, struct outside_frame *frame) MUST_USE;
/* Whether frames outside are mostly at other addresses than at the looks before. */
bool outside_is_elsewhere(const struct stack_tracker *tracker);
/* Reads a frame outside of the chunk, once more if it was read, between two reads of the top. False when the top was
 * not the same before and after. */
bool outside_read_between(struct walk *walk, remote_addr address);
/* The place of a frame of a chunk among those that are read again, at the next look as well; NULL when there is no
 * memory. */
struct again *outside_runner_place(struct stack_tracker *tracker, const struct tracked_frame *runner);
/* Whether the top was where it had been when the frames outside had been read: else they may belong to what has taken
 * its place. */
bool outside_still_waits(const struct walk *walk);
/* The same, read now. */
bool outside_waits_now(struct walk *walk);
/* Whether the top had not changed at all by then. */
bool outside_is_unchanged(const struct walk *walk);

/* Reads the frames from `first` on once more, between two reads of the top: whether they are still what it runs. They
 * are then as they were in between. */
bool outside_confirm(struct walk *walk, size_t first, const struct tracked_frame *callee);

/* Whether the last of the frames so far, a generator, can have called the callee, which has these bytes. */
bool outside_may_have_called(const struct walk *walk, const struct tracked_frame *callee, const uint8_t *bytes);
/* Whether the top can have run the frame at index `first`. From 3.12 on there is a frame between where that is through
 * C. */
bool outside_may_have_run(const struct walk *walk, size_t first);
/* Whether each of the frames from `first` on can have run the next. */
bool outside_may_have_led(const struct walk *walk, size_t first);
/* Whether a generator has been left: up to 3.13 the extent of its stack is saved then, and when it enters another
 * frame. In 3.11 it still says who resumed it last (YIELD_VALUE, Python/ceval.c). */
bool outside_is_suspended(const struct walk *walk, const struct tracked_frame *generator,
                          const struct outside_frame *outside);
/* Where the frame of the generator is that a frame iterates over, if it is one: the object is still in the frame's
 * stack, below a null in 3.15 (FOR_ITER_GEN and SEND_GEN, Python/bytecodes.c 3.12 to 3.15). 0 when that is not known.
 */
remote_addr outside_iterated(const struct walk *walk, const struct caller *frame);
remote_addr outside_iterated_by_top(const struct walk *walk);
/* Whether the top had the outermost of the generators from `first` on among its variables or on its stack. That says
 * little where what is freed last is taken first, and the next generator has the address of the one before; mimalloc
 * does that seldom. */
bool outside_holds_generator(const struct walk *walk, size_t first);

/* Adds the links of a call that was seen before, to that callee or to none. STATUS_NOT_FOUND: none was, or it was
 * believed too soon. */
enum status outside_put_seen(struct walk *walk, const struct seen_call *call,
                             const struct tracked_frame *callee) MUST_USE;

/* Whether the frames from `first` on are many that each await the next. None of them can go on before the next is
 * done: so they are a stack, although they were read one after the other, each while it ran. */
bool outside_is_long_wait(const struct walk *walk, size_t first);
/* Notes that the top runs such from where it is. */
void outside_note_any_wait(struct walk *walk);
/* The same, and which, and what leads to its parts. */
void outside_note_wait(struct walk *walk, size_t first, const struct seen_call *call,
                       const struct tracked_frame *callee);
/* Whether the top was seen to run such from where it is: that nothing was found to run above it says little then. */
bool outside_runs_waits(const struct walk *walk);
/* Adds the generator with this frame, which ran when the thread state was read, and what led to it when that was seen
 * last. STATUS_NOT_FOUND: it does not run, or was not seen. */
enum status outside_put_led(struct walk *walk, remote_addr address) MUST_USE;

/* The instruction of the top. */
int32_t outside_site(const struct walk *walk);
/* What stands in seen_calls for a call by the top so far. Without a callee one looks only for what is above the very
 * instruction, and what that is depends on whether the top has saved the extent of its stack. */
uint32_t outside_key(const struct walk *walk, const struct tracked_frame *callee);
/* Describes the frames from `first` on as the links of a call. */
struct seen_call outside_describe(const struct walk *walk, size_t first, const struct tracked_frame *callee,
                                  struct call_link links[SEEN_CALLS_MAX_LINKS]);
/* Counts: so many, of which so many were as wanted. What was long ago counts less. */
void outside_count(struct outside_count *count, uint32_t seen, uint32_t matched);
/* Counts what the top does that runs frames outside; `late`: not all of them were read along. */
void outside_count_run(const struct walk *walk, bool late);
/* Whether, for all that timing tells, what the frames outside are and what the top is can be of two calls: what the top
 * runs is mostly over when it has been read, and others run theirs where the top is. */
bool outside_can_be_of_another(const struct walk *walk);

/* Whether they cannot be, from what was seen often enough. */
bool outside_is_convincing(const struct walk *walk);
/* Whether the call is not to be believed however often it is seen: they can, and not each of its links is mentioned by
 * what runs it (code_cache_mentions), or other links are that were seen there. */
bool outside_is_strange(const struct walk *walk, const struct seen_call *call, const struct tracked_frame *callee);

/* Whether, for all that is known, it is to be noted what was seen above a top that still waits. In between it may have
 * gone away and come back. What has not changed at all has hardly; but where looks are slow, hardly any top has not
 * changed at all. */
bool outside_is_noteworthy(const struct walk *walk);
/* Whether the frames from `first` on can be vouched for; `late`: not all of them were read along. STATUS_NOT_FOUND:
 * not, and they are taken off again. */
enum status outside_judge(struct walk *walk, size_t first, bool late, const struct tracked_frame *callee) MUST_USE;

#endif
