/* Where a process has its standard library. */
#ifndef STROBE_CPYTHON_LIBRARY_H
#define STROBE_CPYTHON_LIBRARY_H

#include "base/buffer.h"
#include "cpython/interp.h"

/* Appends the folder that the interpreter imported `os` from, an absolute path. STATUS_NOT_FOUND when it has not done
 * so (yet); STATUS_TORN when that could not be read. */
enum status library_read_folder(struct runtime *runtime, const struct interp *interp, struct buffer *folder) MUST_USE;

#endif
