/* Line tables of any bytes: 1 byte format, 4 bytes first line, 4 bytes instruction, then the table. The walk must keep
 * what linetable.h promises of it, and the look-up must agree with the walk. */
#include "base/bytes.h"
#include "cpython/linetable.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { FORMATS = LINETABLE_LOCATIONS + 1, HEADER_BYTES = 9 };

static void require(bool condition) {
    if (!condition)
        abort();
}

/* Walks to the end; *position is what the walk says about the instruction. */
static bool walk(const struct linetable *table, uint32_t instruction_bytes, struct source_position *position) {
    struct linetable_cursor cursor;
    struct linetable_range range;
    uint32_t covered_bytes = 0;
    size_t ranges = 0;
    bool found = false;
    linetable_begin(&cursor, table);
    while (linetable_next(&cursor, &range)) {
        require(range.start_bytes == covered_bytes && range.start_bytes < range.end_bytes);
        covered_bytes = range.end_bytes;
        /* Each range but lnotab's last took at least a byte. */
        require(++ranges <= table->size_bytes + 1 && cursor.next_entry <= table->size_bytes);
        if (instruction_bytes >= range.start_bytes && instruction_bytes < range.end_bytes) {
            *position = range.position;
            found = true;
        }
    }
    require(!linetable_next(&cursor, &range));
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    if (size_bytes < HEADER_BYTES)
        return 0;
    struct linetable table = {
        .format = data[0] % FORMATS,
        .first_line = load_i32(data + 1),
        .bytes = data + HEADER_BYTES,
        .size_bytes = size_bytes - HEADER_BYTES,
    };
    uint32_t instruction_bytes = load_u32(data + 5);
    struct source_position walked = {-1, -1, -1, -1};
    struct source_position looked_up;
    bool in_walk = walk(&table, instruction_bytes, &walked);
    require(linetable_lookup(&table, instruction_bytes, &looked_up) == in_walk);
    require(memcmp(&looked_up, &walked, sizeof walked) == 0);
    return 0;
}
