/* The chain of a thread's frames as it stands in memory, not yet interpreted. Private to this room. */
#ifndef STROBE_UNWIND_FRAME_CHAIN_H
#define STROBE_UNWIND_FRAME_CHAIN_H

#include "unwind/python_stack.h"

/* Reads the chain into reader->chain and *thread's innermost frame with it. *consistent: the chain was of one instant
 * as far as can be told. `cut`: it was longer than MAX_STACK_FRAMES. */

/* Up to 3.10: PyFrameObjects linked through the heap. */
enum status frame_chain_read_objects(struct stack_reader *reader, struct thread_state *thread, bool *consistent,
                                     bool *cut) MUST_USE;
/* From 3.11: _PyInterpreterFrames in data-stack chunks and in generators. */
enum status frame_chain_read_stack(struct stack_reader *reader, struct thread_state *thread, bool *consistent,
                                   bool *cut) MUST_USE;

enum status frame_list_add(struct frame_list *list, const struct frame *frame) MUST_USE;

#endif
