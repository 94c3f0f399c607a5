#include "cpython/long.h"

#include "base/bytes.h"

/* PyLong_SHIFT on 64-bit builds (Include/cpython/longintrepr.h 3.8 to 3.15). */
enum { DIGIT_BITS = 30, MAX_DIGITS = 3 };

enum status long_read_u64(struct runtime *runtime, remote_addr address, uint64_t *value) {
    const struct layout *layout = &runtime->layout;
    bool tagged = layout_has(layout->long_.lv_tag);
    uint8_t bytes[64];
    size_t span = layout->long_.ob_digit + MAX_DIGITS * sizeof(uint32_t);
    if (span > sizeof bytes)
        return STATUS_LIMIT;
    /* A one-digit int may be the last thing on its page. */
    TRY(memory_read(runtime->objects, address, bytes, layout->long_.ob_digit + sizeof(uint32_t)));
    uint64_t tag = load_u64(bytes + (tagged ? layout->long_.lv_tag : layout->object.ob_size));
    bool negative = tagged ? (tag & 3) == 2 : (int64_t)tag < 0;
    uint64_t digits = tagged ? tag >> 3 : tag;
    if (negative || digits > MAX_DIGITS)
        return STATUS_LIMIT;
    TRY(memory_read(runtime->objects, address, bytes, layout->long_.ob_digit + (size_t)digits * sizeof(uint32_t)));
    *value = 0;
    for (size_t i = 0; i < digits; i++) {
        uint64_t digit = load_u32(bytes + layout->long_.ob_digit + i * sizeof(uint32_t));
        if (i * DIGIT_BITS >= 60 && digit >> 4 != 0)
            return STATUS_LIMIT;
        *value |= digit << (i * DIGIT_BITS);
    }
    return STATUS_OK;
}
