/* What a frame of 3.8 to 3.10 is calling, by its own word: it has the callee in its value stack. The frame is copied in
 * one piece, so that this is nearly of one instant, whatever the thread does meanwhile. */
#ifndef STROBE_UNWIND_FRAME_STUDY_H
#define STROBE_UNWIND_FRAME_STUDY_H

#include "cpython/code.h"
#include "cpython/frame.h"

/* Zero-initialise it but for the first two. */
struct frame_study {
    struct runtime *runtime;  /* borrowed */
    struct code_cache *codes; /* borrowed */
    /* Private: types are told by their names, the first time. */
    remote_addr function_type;
    remote_addr method_type;
    remote_addr generator_type;
    remote_addr coroutine_type;
    uint32_t random;
};

struct studied_call {
    const struct code *caller;
    const struct code *callee;
    remote_addr previous; /* the caller's caller */
    int32_t instruction_bytes;
    bool direct;   /* else it is an argument of what is called, which may call it */
    bool standing; /* it said the same twice in a row */
};

/* Reads the frame object at `address`. STATUS_NOT_FOUND: it calls nothing, or nothing that can be told. */
enum status frame_study_call(struct frame_study *study, remote_addr address, struct studied_call *call) MUST_USE;

#endif
