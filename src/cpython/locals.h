/* A frame's arguments and local variables. */
#ifndef STROBE_CPYTHON_LOCALS_H
#define STROBE_CPYTHON_LOCALS_H

#include "cpython/code.h"
#include "cpython/frame.h"

/* One variable that has a value. The name is valid during the call only. */
typedef enum status local_visit_fn(void *context, const char *name, remote_addr value, bool argument);

/* Visits the variables of a frame in the order of f_locals: of a function its fast locals, cells and free variables,
 * of a module or class body its namespace. `frames` is the memory that holds the frame of the look it came from.
 * Stops with what `visit` returns when that is not STATUS_OK. */
enum status locals_visit(struct runtime *runtime, struct memory *frames, const struct frame *frame,
                         const struct code *code, local_visit_fn *visit, void *context) MUST_USE;

#endif
