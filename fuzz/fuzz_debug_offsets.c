/* Any bytes as a `_Py_DebugOffsets`. A table that is accepted must not send its reader far: the offsets of the structs
 * that strobe reads as a whole lie in them, and no offset is larger than any CPython's.
 * The corpus begins with the tables of 3.13, 3.13t, 3.14 and 3.15 as they stand in memory at _PyRuntime. */
#include "cpython/layout.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* A little more than the largest struct believed (debug_offsets.c), for what is derived behind its end. */
enum { OFFSET_MAX = 17 << 20 };

static void require(bool condition) {
    if (!condition)
        abort();
}

/* The group is a struct of layout_offset and nothing else. */
static void require_below(const void *group, size_t group_bytes, uint32_t limit) {
    for (size_t i = 0; i < group_bytes; i += sizeof(layout_offset)) {
        layout_offset offset;
        memcpy(&offset, (const char *)group + i, sizeof offset);
        require(!layout_has(offset) || offset <= limit);
    }
}

#define REQUIRE_IN_STRUCT(group) require_below(&(group), sizeof(group), (group).size)
#define REQUIRE_BELIEVABLE(group) require_below(&(group), sizeof(group), OFFSET_MAX)

static void require_sane(const struct layout *layout) {
    require(layout->version >> 24 == 3 && layout_minor(layout) >= 13);
    REQUIRE_BELIEVABLE(layout->runtime);
    REQUIRE_BELIEVABLE(layout->interp);
    REQUIRE_IN_STRUCT(layout->runtime);
    REQUIRE_IN_STRUCT(layout->interp);
    REQUIRE_IN_STRUCT(layout->gil);
    REQUIRE_IN_STRUCT(layout->thread);
    REQUIRE_IN_STRUCT(layout->frame);
    REQUIRE_IN_STRUCT(layout->code);
    REQUIRE_BELIEVABLE(layout->stack_chunk);
    REQUIRE_BELIEVABLE(layout->object);
    REQUIRE_BELIEVABLE(layout->type);
    REQUIRE_BELIEVABLE(layout->tuple);
    REQUIRE_BELIEVABLE(layout->list);
    REQUIRE_BELIEVABLE(layout->set);
    REQUIRE_BELIEVABLE(layout->dict);
    REQUIRE_BELIEVABLE(layout->dict_keys);
    REQUIRE_BELIEVABLE(layout->float_);
    REQUIRE_BELIEVABLE(layout->complex_);
    REQUIRE_BELIEVABLE(layout->long_);
    REQUIRE_BELIEVABLE(layout->bytes);
    REQUIRE_BELIEVABLE(layout->bytearray);
    REQUIRE_BELIEVABLE(layout->function);
    REQUIRE_BELIEVABLE(layout->method);
    REQUIRE_BELIEVABLE(layout->builtin);
    REQUIRE_BELIEVABLE(layout->module);
    REQUIRE_BELIEVABLE(layout->cell);
    REQUIRE_BELIEVABLE(layout->gen);
    REQUIRE_BELIEVABLE(layout->llist);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct layout layout;
    struct error error = {0};
    enum status status = debug_offsets_decode(data, size_bytes, &layout, &error);
    if (status == STATUS_OK) {
        require(debug_offsets_present(data, size_bytes));
        require_sane(&layout);
    } else {
        require(status == STATUS_NOT_PYTHON && error.status == status && error.text[0] != '\0');
    }
    return 0;
}
