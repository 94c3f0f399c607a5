/* From a process to its CPython runtime. */
#ifndef STROBE_SAMPLER_ATTACH_RUNTIME_H
#define STROBE_SAMPLER_ATTACH_RUNTIME_H

#include "cpython/runtime.h"
#include "process/process.h"

/* Finds and opens the runtime that is in use in the process; runtime->empty when it has none with an interpreter in it
 * but one that may yet come to life. `objects` reads what does not change (a cache over the process's memory).
 * Failures as those of locate_runtime and runtime_open. */
enum status attach_runtime(struct process *process, struct memory *objects, struct runtime *runtime,
                           struct error *error) MUST_USE;

#endif
