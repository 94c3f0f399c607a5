/* What calling an object does to the stack of frames. */
#ifndef STROBE_CPYTHON_CALLABLE_H
#define STROBE_CPYTHON_CALLABLE_H

#include "cpython/runtime.h"

enum callable_kind {
    CALLABLE_OTHER = 0, /* another one, no callable, or it cannot be read */
    CALLABLE_FUNCTION,  /* in Python */
    CALLABLE_METHOD,    /* bound, of a function in Python mostly */
    /* A function or class that the interpreter calls through C, if that calls Python code at all. (3.13 and later may
     * enter a class's __init__, with a frame of their own below.) Not all that are such are known as such. */
    CALLABLE_C,
};

enum callable_kind callable_kind(struct runtime *runtime, remote_addr object);

#endif
