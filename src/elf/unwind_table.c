/* .eh_frame: a list of common information entries (CIE) and frame description entries (FDE), each
 *
 *     u32 length, u32 id (CIE: 0; FDE: how far back its CIE begins), ...
 *
 * as the Linux Standard Base (Core, 10.6) and DWARF 4 (6.4) describe them. Read here, and not with libdw, because the
 * few rules that compilers write for ordinary code are all that is wanted, and because libdw would make up a third of
 * strobe. */
#include "elf/unwind_table.h"

#include "base/array.h"
#include "elf/unwind_program.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { RANGES_MAX = 1 << 22 };

/* How pointers are written (LSB Core, 10.5). */
enum {
    POINTER_FORMAT = 0x0f,
    POINTER_ABSOLUTE = 0x00,
    POINTER_UDATA2 = 0x02,
    POINTER_UDATA4 = 0x03,
    POINTER_UDATA8 = 0x04,
    POINTER_SDATA2 = 0x0a,
    POINTER_SDATA4 = 0x0b,
    POINTER_SDATA8 = 0x0c,
    POINTER_RELATIVE = 0x70,
    POINTER_TO_ITSELF = 0x10,
    POINTER_OMITTED = 0xff,
};

struct unwind_table {
    struct elf_section section;
    const struct unwind_registers *registers;
    struct unwind_range *ranges;
    size_t count;
    size_t capacity;
};

/* One entry without its length. `id_offset` is where its id stands in the section. */
struct entry {
    struct bytes body; /* behind the id */
    size_t id_offset;
    uint32_t id;
};

static enum status read_entry(const struct unwind_table *table, size_t offset, struct entry *entry, size_t *next) {
    struct bytes bytes = {.at = table->section.data + offset, .end = table->section.data + table->section.size_bytes};
    uint32_t length = bytes_u32(&bytes);
    /* 0 ends the section; 0xffffffff begins a 64-bit entry, of which there are none: no .eh_frame has 4 GiB. */
    if (bytes.failed || length < sizeof entry->id || length > (size_t)(bytes.end - bytes.at))
        return STATUS_NOT_FOUND;
    bytes.end = bytes.at + length;
    entry->id_offset = (size_t)(bytes.at - table->section.data);
    entry->id = bytes_u32(&bytes);
    entry->body = bytes;
    *next = (size_t)(bytes.end - table->section.data);
    return STATUS_OK;
}

static uint64_t read_pointer(const struct unwind_table *table, struct bytes *bytes, uint8_t encoding) {
    uint64_t place = table->section.address + (uint64_t)(bytes->at - table->section.data);
    uint64_t value = 0;
    switch (encoding & POINTER_FORMAT) {
    case POINTER_UDATA2:
        value = bytes_u16(bytes);
        break;
    case POINTER_SDATA2:
        value = (uint64_t)(int16_t)bytes_u16(bytes);
        break;
    case POINTER_UDATA4:
        value = bytes_u32(bytes);
        break;
    case POINTER_SDATA4:
        value = (uint64_t)(int32_t)bytes_u32(bytes);
        break;
    case POINTER_ABSOLUTE:
    case POINTER_UDATA8:
    case POINTER_SDATA8:
        value = bytes_u64(bytes);
        break;
    default:
        bytes->failed = true;
    }
    if ((encoding & POINTER_RELATIVE) == POINTER_TO_ITSELF)
        value += place;
    else if ((encoding & POINTER_RELATIVE) != 0)
        bytes->failed = true;
    return value;
}

/* The augmentation string says what the augmentation data hold, in that order. */
static void read_augmentation(const struct unwind_table *table, struct bytes *bytes, const char *letters,
                              struct unwind_cie *cie) {
    if (letters[0] != 'z')
        return;
    uint64_t size_bytes = bytes_uleb(bytes);
    struct bytes data = {.at = bytes->at, .end = bytes->at};
    if (!bytes_skip(bytes, size_bytes))
        return;
    data.end = bytes->at;
    cie->has_augmentation = true;
    for (size_t i = 1; letters[i] != '\0' && !data.failed; i++)
        switch (letters[i]) {
        case 'R':
            cie->encoding = bytes_u8(&data);
            break;
        case 'P': {
            uint8_t encoding = bytes_u8(&data);
            (void)read_pointer(table, &data, encoding);
            break;
        }
        case 'L':
            (void)bytes_u8(&data);
            break;
        case 'S':
            cie->signal_frame = true;
            break;
        default:
            /* 'B' (aarch64: return addresses are signed with the other key) has no data; an unknown letter may have. */
            if (letters[i] != 'B')
                return;
        }
}

static enum status read_cie(const struct unwind_table *table, size_t offset, struct unwind_cie *cie) {
    struct entry entry;
    size_t next = 0;
    *cie = (struct unwind_cie){.encoding = POINTER_ABSOLUTE};
    TRY(read_entry(table, offset, &entry, &next));
    struct bytes bytes = entry.body;
    if (entry.id != 0)
        return STATUS_DAMAGED;
    uint8_t version = bytes_u8(&bytes);
    const char *letters = (const char *)bytes.at;
    const uint8_t *end = bytes.at < bytes.end ? memchr(bytes.at, '\0', (size_t)(bytes.end - bytes.at)) : NULL;
    if ((version != 1 && version != 3) || end == NULL)
        return STATUS_NOT_FOUND;
    bytes.at = end + 1;
    cie->code_alignment = bytes_uleb(&bytes);
    cie->data_alignment = bytes_sleb(&bytes);
    cie->return_register = version == 1 ? bytes_u8(&bytes) : bytes_uleb(&bytes);
    read_augmentation(table, &bytes, letters, cie);
    cie->program = bytes;
    return bytes.failed ? STATUS_DAMAGED : STATUS_OK;
}

/* An entry that is no FDE is STATUS_NOT_FOUND. *cie_offset: of the CIE that `cie` holds already. */
static enum status read_fde(const struct unwind_table *table, const struct entry *entry, struct unwind_cie *cie,
                            size_t *cie_offset, struct unwind_range *range, struct bytes *program) {
    struct bytes bytes = entry->body;
    if (entry->id == 0 || entry->id > entry->id_offset)
        return STATUS_NOT_FOUND;
    if (*cie_offset != entry->id_offset - entry->id) {
        *cie_offset = entry->id_offset - entry->id;
        enum status status = read_cie(table, *cie_offset, cie);
        if (status != STATUS_OK) {
            *cie_offset = SIZE_MAX;
            return status;
        }
    }
    range->start = read_pointer(table, &bytes, cie->encoding);
    uint64_t size = read_pointer(table, &bytes, cie->encoding & POINTER_FORMAT);
    range->end = range->start + size;
    if (cie->has_augmentation)
        (void)bytes_skip(&bytes, bytes_uleb(&bytes));
    *program = bytes;
    return bytes.failed || range->end <= range->start ? STATUS_DAMAGED : STATUS_OK;
}

static enum status add_range(struct unwind_table *table, const struct unwind_range *range) {
    if (table->count == RANGES_MAX)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&table->ranges, &table->capacity, table->count + 1, sizeof *range));
    table->ranges[table->count++] = *range;
    return STATUS_OK;
}

static int compare_ranges(const void *left, const void *right) {
    const struct unwind_range *a = left, *b = right;
    return a->start != b->start ? (a->start > b->start) - (a->start < b->start) : (a->end > b->end) - (a->end < b->end);
}

/* Linkers keep entries of functions that they threw away, at address 0 or on top of others. */
static void drop_overlaps(struct unwind_table *table) {
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++)
        if (kept == 0 || table->ranges[i].start >= table->ranges[kept - 1].end)
            table->ranges[kept++] = table->ranges[i];
    table->count = kept;
}

static enum status read_ranges(struct unwind_table *table) {
    struct unwind_cie cie;
    size_t cie_offset = SIZE_MAX;
    struct entry entry;
    size_t offset = 0, next = 0;
    bool sorted = true;
    while (offset < table->section.size_bytes && read_entry(table, offset, &entry, &next) == STATUS_OK) {
        struct unwind_range range = {.entry = (uint32_t)offset};
        struct bytes program;
        if (read_fde(table, &entry, &cie, &cie_offset, &range, &program) == STATUS_OK) {
            sorted = sorted && (table->count == 0 || table->ranges[table->count - 1].start <= range.start);
            TRY(add_range(table, &range));
        }
        offset = next;
    }
    if (!sorted)
        qsort(table->ranges, table->count, sizeof *table->ranges, compare_ranges);
    drop_overlaps(table);
    return table->count > 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

enum status unwind_table_load(struct elf_file *file, struct unwind_table **result) {
    *result = NULL;
    const struct unwind_registers *registers = unwind_registers_of(elf_file_machine(file));
    if (registers == NULL)
        return STATUS_NOT_FOUND;
    struct unwind_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return STATUS_FAILED;
    table->registers = registers;
    enum status status = elf_file_read_section(file, ".eh_frame", &table->section);
    if (status == STATUS_OK)
        status = read_ranges(table);
    if (status != STATUS_OK) {
        unwind_table_free(table);
        return status;
    }
    *result = table;
    return STATUS_OK;
}

void unwind_table_free(struct unwind_table *table) {
    if (table == NULL)
        return;
    free(table->ranges);
    free(table);
}

const struct unwind_range *unwind_table_ranges(const struct unwind_table *table, size_t *count) {
    *count = table->count;
    return table->ranges;
}

const struct unwind_range *unwind_table_find(const struct unwind_table *table, uint64_t address) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->count && table->ranges[low].start <= address ? &table->ranges[low] : NULL;
}

enum status unwind_table_read_row(const struct unwind_table *table, uint64_t address, struct unwind_row *row) {
    const struct unwind_range *range = unwind_table_find(table, address);
    struct entry entry;
    struct unwind_cie cie;
    struct unwind_range found;
    struct bytes program;
    size_t next = 0, cie_offset = SIZE_MAX;
    if (range == NULL)
        return STATUS_NOT_FOUND;
    TRY(read_entry(table, range->entry, &entry, &next));
    TRY(read_fde(table, &entry, &cie, &cie_offset, &found, &program));
    return unwind_program_run(table->registers, &cie, program, found.start, address, row);
}
