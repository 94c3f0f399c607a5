#include "elf/elf_data.h"

#include "base/bytes.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { DYNAMIC_ENTRIES_MAX = 512 };

struct elf_data {
    uint16_t machine;
    struct elf_data_run runs[ELF_SEGMENTS_MAX];
    uint8_t *storage[ELF_SEGMENTS_MAX];
    size_t run_count;
    uint64_t low, high; /* what lies outside is in none of the runs: most numbers that are asked for */
    struct elf_segment code[ELF_SEGMENTS_MAX];
    size_t code_count;
    uint64_t dynamic_address;
};

/* What PT_DYNAMIC says of relocations. */
struct dynamic {
    uint64_t symbols;
    uint64_t rela, rela_bytes;
    uint64_t linkage, linkage_bytes; /* DT_JMPREL */
};

/* The run in which an address lies; the number of runs when there is none. */
static size_t find_run(const struct elf_data *data, uint64_t address) {
    if (address - data->low >= data->high - data->low)
        return data->run_count;
    size_t i = 0;
    while (i < data->run_count && address - data->runs[i].address >= data->runs[i].size_bytes)
        i++;
    return i;
}

static uint8_t *find_bytes(const struct elf_data *data, uint64_t address, size_t size_bytes) {
    size_t i = find_run(data, address);
    if (i == data->run_count)
        return NULL;
    uint64_t offset = address - data->runs[i].address;
    return size_bytes <= data->runs[i].size_bytes - offset ? data->storage[i] + offset : NULL;
}

static void put_word(struct elf_data *data, uint64_t address, uint64_t word) {
    uint8_t *place = find_bytes(data, address, sizeof word);
    if (place != NULL)
        memcpy(place, &word, sizeof word);
}

static void read_dynamic(const struct elf_data *data, struct dynamic *dynamic) {
    uint64_t tag = 0, value = 0;
    *dynamic = (struct dynamic){0};
    for (uint64_t i = 0, at = data->dynamic_address; i < DYNAMIC_ENTRIES_MAX; i++, at += sizeof(Elf64_Dyn)) {
        if (!elf_data_read_word(data, at, &tag) || !elf_data_read_word(data, at + 8, &value) || tag == DT_NULL)
            return;
        switch (tag) {
        case DT_SYMTAB:
            dynamic->symbols = value;
            break;
        case DT_RELA:
            dynamic->rela = value;
            break;
        case DT_RELASZ:
            dynamic->rela_bytes = value;
            break;
        case DT_JMPREL:
            dynamic->linkage = value;
            break;
        case DT_PLTRELSZ:
            dynamic->linkage_bytes = value;
            break;
        default:
            break;
        }
    }
}

/* False for one that another object defines. */
static bool symbol_address(const struct elf_data *data, const struct dynamic *dynamic, uint64_t index,
                           uint64_t *address) {
    const uint8_t *bytes = find_bytes(data, dynamic->symbols + index * sizeof(Elf64_Sym), sizeof(Elf64_Sym));
    if (bytes == NULL)
        return false;
    Elf64_Sym symbol;
    memcpy(&symbol, bytes, sizeof symbol);
    *address = symbol.st_value;
    return symbol.st_shndx != SHN_UNDEF;
}

/* What DT_RELR names needs nothing: those words hold the addresses already. */
static void apply_rela(struct elf_data *data, const struct dynamic *dynamic, uint64_t table, uint64_t size_bytes) {
    bool x86 = data->machine == EM_X86_64;
    const uint8_t *bytes = find_bytes(data, table, size_bytes);
    for (uint64_t at = 0; bytes != NULL && at + sizeof(Elf64_Rela) <= size_bytes; at += sizeof(Elf64_Rela)) {
        Elf64_Rela rela;
        uint64_t address = 0;
        memcpy(&rela, bytes + at, sizeof rela);
        uint32_t type = (uint32_t)ELF64_R_TYPE(rela.r_info);
        bool symbolic = type == (x86 ? R_X86_64_64 : R_AARCH64_ABS64) ||
                        type == (x86 ? R_X86_64_GLOB_DAT : R_AARCH64_GLOB_DAT) ||
                        type == (x86 ? R_X86_64_JUMP_SLOT : R_AARCH64_JUMP_SLOT);
        if (type == (x86 ? R_X86_64_RELATIVE : R_AARCH64_RELATIVE))
            put_word(data, rela.r_offset, (uint64_t)rela.r_addend);
        else if (symbolic && symbol_address(data, dynamic, ELF64_R_SYM(rela.r_info), &address))
            put_word(data, rela.r_offset, address + (uint64_t)rela.r_addend);
    }
}

static enum status read_segment(struct elf_file *file, struct elf_data *data, const struct elf_segment *segment) {
    size_t i = data->run_count;
    data->storage[i] = malloc(segment->file_bytes);
    if (data->storage[i] == NULL)
        return STATUS_FAILED;
    data->run_count++;
    data->runs[i] = (struct elf_data_run){.address = segment->address,
                                          .bytes = data->storage[i],
                                          .size_bytes = segment->file_bytes,
                                          .writable = segment->writable};
    uint64_t end = segment->address + segment->file_bytes;
    data->low = data->high == 0 || segment->address < data->low ? segment->address : data->low;
    data->high = end > data->high ? end : data->high;
    return elf_file_read(file, segment->address, data->storage[i], segment->file_bytes);
}

static enum status read_segments(struct elf_file *file, struct elf_data *data, size_t limit_bytes) {
    struct elf_segment segments[ELF_SEGMENTS_MAX];
    size_t count = elf_file_segments(file, segments);
    for (size_t i = 0; i < count; i++) {
        if (segments[i].dynamic) {
            data->dynamic_address = segments[i].address;
            continue;
        }
        if (segments[i].executable)
            data->code[data->code_count++] = segments[i];
        /* Older linkers put read-only data, the headers first, and code into one segment. */
        if (segments[i].executable && segments[i].file_offset != 0)
            continue;
        if (segments[i].file_bytes > limit_bytes)
            return STATUS_LIMIT;
        limit_bytes -= segments[i].file_bytes;
        TRY(read_segment(file, data, &segments[i]));
    }
    return STATUS_OK;
}

enum status elf_data_load(struct elf_file *file, size_t limit_bytes, struct elf_data **result) {
    *result = NULL;
    struct elf_data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return STATUS_FAILED;
    data->machine = elf_file_machine(file);
    enum status status = read_segments(file, data, limit_bytes);
    if (status != STATUS_OK) {
        elf_data_free(data);
        return status;
    }
    if (data->dynamic_address != 0) {
        struct dynamic dynamic;
        read_dynamic(data, &dynamic);
        apply_rela(data, &dynamic, dynamic.rela, dynamic.rela_bytes);
        apply_rela(data, &dynamic, dynamic.linkage, dynamic.linkage_bytes);
    }
    *result = data;
    return STATUS_OK;
}

void elf_data_free(struct elf_data *data) {
    if (data == NULL)
        return;
    for (size_t i = 0; i < data->run_count; i++)
        free(data->storage[i]);
    free(data);
}

const struct elf_data_run *elf_data_runs(const struct elf_data *data, size_t *count) {
    *count = data->run_count;
    return data->runs;
}

bool elf_data_read_word(const struct elf_data *data, uint64_t address, uint64_t *word) {
    const uint8_t *bytes = find_bytes(data, address, sizeof *word);
    if (bytes == NULL)
        return false;
    *word = load_u64(bytes);
    return true;
}

const char *elf_data_text(const struct elf_data *data, uint64_t address, size_t max_bytes) {
    size_t i = find_run(data, address);
    if (i == data->run_count)
        return NULL;
    uint64_t offset = address - data->runs[i].address;
    size_t left = data->runs[i].size_bytes - offset;
    const char *text = (const char *)data->storage[i] + offset;
    return memchr(text, '\0', left < max_bytes ? left : max_bytes) != NULL ? text : NULL;
}

bool elf_data_holds(const struct elf_data *data, uint64_t address) {
    return find_bytes(data, address, 1) != NULL;
}

bool elf_data_is_code(const struct elf_data *data, uint64_t address) {
    for (size_t i = 0; i < data->code_count; i++)
        if (address >= data->code[i].address && address - data->code[i].address < data->code[i].file_bytes)
            return true;
    return false;
}
