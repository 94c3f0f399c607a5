#include "export/protobuf.h"

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

enum status protobuf_append_varint(struct buffer *packed, uint64_t value) {
    unsigned char bytes[10];
    size_t count = 0;
    do {
        bytes[count] = (unsigned char)(value & 0x7f);
        value >>= 7;
        if (value != 0)
            bytes[count] |= 0x80;
        count++;
    } while (value != 0);
    return buffer_append(packed, bytes, count);
}

enum status protobuf_append_number(struct buffer *message, uint32_t field, uint64_t value) {
    if (value == 0)
        return STATUS_OK;
    TRY(protobuf_append_varint(message, (uint64_t)field << 3 | WIRE_VARINT));
    return protobuf_append_varint(message, value);
}

enum status protobuf_append_bytes(struct buffer *message, uint32_t field, const void *bytes, size_t size_bytes) {
    TRY(protobuf_append_varint(message, (uint64_t)field << 3 | WIRE_BYTES));
    TRY(protobuf_append_varint(message, size_bytes));
    return buffer_append(message, bytes, size_bytes);
}
