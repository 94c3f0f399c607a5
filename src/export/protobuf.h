/* Writes protocol buffers (https://protobuf.dev/programming-guides/encoding/): the wire types that pprof needs. */
#ifndef STROBE_EXPORT_PROTOBUF_H
#define STROBE_EXPORT_PROTOBUF_H

#include "base/buffer.h"

#include <stdint.h>

/* A field whose value is 0 is left out, as proto3 has it. */
enum status protobuf_append_number(struct buffer *message, uint32_t field, uint64_t value) MUST_USE;
/* A string, bytes, or a message made in a buffer of its own. Written also when it is empty. */
enum status protobuf_append_bytes(struct buffer *message, uint32_t field, const void *bytes,
                                  size_t size_bytes) MUST_USE;
/* One number of a packed field: its content is collected in a buffer of its own. */
enum status protobuf_append_varint(struct buffer *packed, uint64_t value) MUST_USE;

#endif
