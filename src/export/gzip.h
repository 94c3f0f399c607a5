/* A gzip file, written piece by piece to a stream. */
#ifndef STROBE_EXPORT_GZIP_H
#define STROBE_EXPORT_GZIP_H

#include "base/status.h"

#include <stdio.h>
#include <zlib.h>

/* Fields are private. A failed write shows in ferror(stream). */
struct gzip {
    z_stream deflate;
    FILE *stream;
};

/* Only want of memory makes it fail; then there is nothing to release. */
enum status gzip_init(struct gzip *gzip, FILE *stream) MUST_USE;
void gzip_release(struct gzip *gzip);
void gzip_write(struct gzip *gzip, const void *bytes, size_t size_bytes);
/* Writes what is left and the end of the file. */
void gzip_finish(struct gzip *gzip);

#endif
