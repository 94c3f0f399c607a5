/* Which files are shown as sources in a report. A capture names files, and may be a stranger's; a page made of it has
 * their text in it, and is passed on. So a name in a capture is no reason to show a file: it must be Python by what it
 * is. */
#ifndef STROBE_TERMINAL_PYTHON_SOURCE_H
#define STROBE_TERMINAL_PYTHON_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Whether the file, which was opened by that path, is shown: its name ends like a Python source's (a link counts as
 * what it leads to) or its first line says that Python runs it; and it is text that Python would read: no NUL, and
 * UTF-8 unless it says itself what else it is. */
bool python_source_is(const char *path, const struct stat *info, const char *text, size_t size_bytes);

#endif
