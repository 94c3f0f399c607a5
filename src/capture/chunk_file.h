/* The file that chunks go to. Compressing and writing take milliseconds, and more on a slow disk, in which a sampler
 * would miss its deadlines; so they can be a thread's of their own. One caller at a time. */
#ifndef STROBE_CAPTURE_CHUNK_FILE_H
#define STROBE_CAPTURE_CHUNK_FILE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct chunk_file;

/* Owns the descriptor, also when it fails. Begins at once, unless the file has something in it. */
enum status chunk_file_open(int descriptor, int compression_level, bool in_background, struct chunk_file **file,
                            struct error *error) MUST_USE;
/* Empties the file and writes its header, the first time. Before the first chunk. */
enum status chunk_file_begin(struct chunk_file *file, struct error *error) MUST_USE;
/* Writes a chunk with this payload. Takes the payload's bytes over and leaves an empty buffer, with other memory. In
 * the background: waits for the chunk before this one, and fails if that failed. A failure is final. */
enum status chunk_file_write(struct chunk_file *file, struct buffer *payload, uint32_t epoch) MUST_USE;
/* Waits until all of it is written. */
enum status chunk_file_wait(struct chunk_file *file) MUST_USE;
/* What went wrong; only after one of the above failed. */
const char *chunk_file_complaint(const struct chunk_file *file);
/* Bytes that reached the file. */
uint64_t chunk_file_size_bytes(struct chunk_file *file);
/* Closes the file, after what is being written. In a forked child, which has no such thread, nothing is waited for. */
void chunk_file_close(struct chunk_file *file);

#endif
