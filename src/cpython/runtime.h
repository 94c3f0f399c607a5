/* One CPython runtime in a target: its layout, where it is, and how to read it. */
#ifndef STROBE_CPYTHON_RUNTIME_H
#define STROBE_CPYTHON_RUNTIME_H

#include "base/memory.h"
#include "cpython/layout.h"

/* What is asked of the place where the runtime was found. */
struct runtime_symbols {
    remote_addr runtime;    /* _PyRuntime */
    remote_addr py_version; /* Py_Version (3.11+), 0 when not found */
    int minor_hint;         /* from a file name such as libpython3.9.so; 0 when there is none */
};

/* A runtime. `live` reads what changes while the program runs (threads, frames); `objects` may be a cache over it for
 * what does not (code, names). Both are borrowed and may be the same. */
struct runtime {
    struct memory *live;
    struct memory *objects;
    remote_addr address;
    uint32_t version; /* the target's own PY_VERSION_HEX; 0 while it starts up and cannot say */
    bool empty;       /* no interpreter lives in it: starting up, shut down, or a copy that is never used */
    struct layout layout;
};

/* Chooses and checks the layout of the runtime at symbols->runtime. STATUS_NOT_PYTHON when what stands there fits no
 * known CPython. */
enum status runtime_open(struct runtime *runtime, struct memory *live, struct memory *objects,
                         const struct runtime_symbols *symbols, struct error *error) MUST_USE;

/* "3.13.18", "3.15.0rc2" from a PY_VERSION_HEX. */
void runtime_format_version(uint32_t version, char text[24]);

#endif
