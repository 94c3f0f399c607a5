#include "export/gzip.h"

#include <string.h>

/* zlib's way to say 'a gzip header, and the largest window'. */
enum { GZIP_WINDOW_BITS = 16 + MAX_WBITS, MEMORY_LEVEL = 8 };

enum status gzip_init(struct gzip *gzip, FILE *stream) {
    memset(&gzip->deflate, 0, sizeof gzip->deflate);
    gzip->stream = stream;
    int result = deflateInit2(&gzip->deflate, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS, MEMORY_LEVEL,
                              Z_DEFAULT_STRATEGY);
    return result == Z_OK ? STATUS_OK : STATUS_FAILED;
}

void gzip_release(struct gzip *gzip) {
    (void)deflateEnd(&gzip->deflate);
}

static void run(struct gzip *gzip, int flush) {
    unsigned char output[1 << 14];
    do {
        gzip->deflate.next_out = output;
        gzip->deflate.avail_out = sizeof output;
        (void)deflate(&gzip->deflate, flush);
        (void)fwrite(output, 1, sizeof output - gzip->deflate.avail_out, gzip->stream);
    } while (gzip->deflate.avail_out == 0);
}

void gzip_write(struct gzip *gzip, const void *bytes, size_t size_bytes) {
    const unsigned char *at = bytes;
    while (size_bytes > 0) {
        uInt piece = size_bytes < 1u << 30 ? (uInt)size_bytes : 1u << 30;
        gzip->deflate.next_in = (unsigned char *)at;
        gzip->deflate.avail_in = piece;
        run(gzip, Z_NO_FLUSH);
        at += piece;
        size_bytes -= piece;
    }
}

void gzip_finish(struct gzip *gzip) {
    gzip->deflate.avail_in = 0;
    run(gzip, Z_FINISH);
}
