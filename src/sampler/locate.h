/* Finding CPython in a process: which mapped object holds `_PyRuntime`, and where. */
#ifndef STROBE_SAMPLER_LOCATE_H
#define STROBE_SAMPLER_LOCATE_H

#include "cpython/runtime.h"
#include "process/process.h"

enum { LOCATED_MAX = 16 };

/* Candidates, best first. More than one where an object is mapped twice (ctypes of a copy) or where a static python
 * also loads a libpython: all but one of them are never initialised. The caller takes the first in which
 * an interpreter lives. */
struct located {
    struct runtime_symbols candidates[LOCATED_MAX];
    size_t count;
};

/* Looks in the objects that are called like Python and in the executable; when none of them has a runtime, in all
 * others. STATUS_NOT_PYTHON when there is none; STATUS_TORN when there is none yet because the process is still being
 * started (its executable wants a libpython that is not mapped), so that it is worth looking again. */
enum status locate_runtime(struct process *process, struct located *located, struct error *error) MUST_USE;

/* The same in all objects whatever their names, for when no candidate of locate_runtime turned out to be in use. */
enum status locate_runtime_everywhere(struct process *process, struct located *located, struct error *error) MUST_USE;

/* The table that describes asyncio's tasks (3.14+), in the extension module `_asyncio` or, where that is built in, in
 * the object that holds the runtime. STATUS_NOT_FOUND when the module is not loaded (yet). */
enum status locate_asyncio_debug(struct process *process, const struct runtime_symbols *symbols,
                                 remote_addr *address) MUST_USE;

/* The version that a file's name tells of: 13 from "libpython3.13t.so.1.0", "python3.13" or "x.cpython-313-….so";
 * 0 when it tells of none. */
int locate_minor_from_name(const char *path);

#endif
