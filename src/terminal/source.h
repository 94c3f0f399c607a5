/* Lines of source files, for showing beside what was measured. */
#ifndef STROBE_TERMINAL_SOURCE_H
#define STROBE_TERMINAL_SOURCE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Opens a source file for reading; the descriptor becomes the cache's. */
typedef enum status source_open_fn(void *context, const char *path, int *fd);

/* Which files are had. */
enum source_files {
    SOURCE_PYTHON, /* those that are Python by what they are (python_source.h): who named them may be anybody */
    SOURCE_ANY,
};

/* Files read so far. Not thread-safe. */
struct source_cache;

struct source_cache *source_cache_new(source_open_fn *open, void *context, enum source_files which);
void source_cache_free(struct source_cache *cache);

/* Line `number` (from 1) of the file, without its newline; *text is not NUL-terminated and lives as long as the cache.
 * STATUS_NOT_FOUND when there is no such file or line, or it is not to be had. */
enum status source_line(struct source_cache *cache, const char *path, int32_t number, const char **text,
                        size_t *size_bytes) MUST_USE;

#endif
