#include "elf/symbol_table.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS_MAX = 1 << 22, NAME_MAX_BYTES = 1 << 12 };

/* One that is of unknown size and the last of its kind is not believed to reach further. */
enum { UNSIZED_MAX_BYTES = 1 << 16 };

struct entry {
    uint64_t start;
    uint64_t size_bytes;
    const char *name;
    uint8_t rank; /* of several names for one address, the least is taken */
};

struct symbol_table {
    struct entry *entries;
    size_t count;
    size_t capacity;
};

struct source {
    struct elf_section symbols;
    struct elf_section strings;
};

static enum status open_source(struct elf_file *file, const char *symbols, const char *strings, struct source *source) {
    TRY(elf_file_read_section(file, symbols, &source->symbols));
    return elf_file_read_section(file, strings, &source->strings);
}

static bool is_function(const Elf64_Sym *symbol) {
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    /* Assembly often has no type; a name of that kind that is no function is not in code, so never asked for. */
    return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx != SHN_ABS && symbol->st_value != 0 &&
           (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE);
}

static uint8_t rank_of(const Elf64_Sym *symbol) {
    unsigned binding = ELF64_ST_BIND(symbol->st_info);
    unsigned rank = binding == STB_GLOBAL ? 0 : binding == STB_WEAK ? 1 : 2;
    return (uint8_t)(ELF64_ST_TYPE(symbol->st_info) == STT_NOTYPE ? rank + 3 : rank);
}

/* aarch64 marks what is code ($x) and what is data ($d) within a function. */
static bool is_name(const char *name) {
    return name[0] != '\0' && name[0] != '$';
}

static void add_symbols(struct symbol_table *table, const struct source *source) {
    size_t count = source->symbols.size_bytes / sizeof(Elf64_Sym);
    for (size_t i = 0; i < count && table->count < table->capacity; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, source->symbols.data + i * sizeof symbol, sizeof symbol);
        if (!is_function(&symbol) || symbol.st_name >= source->strings.size_bytes)
            continue;
        const char *name = (const char *)source->strings.data + symbol.st_name;
        size_t left = source->strings.size_bytes - symbol.st_name;
        if (memchr(name, '\0', left < NAME_MAX_BYTES ? left : NAME_MAX_BYTES) == NULL || !is_name(name))
            continue;
        table->entries[table->count++] = (struct entry){
            .start = symbol.st_value, .size_bytes = symbol.st_size, .name = name, .rank = rank_of(&symbol)};
    }
}

static int compare_entries(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    if (a->start != b->start)
        return (a->start > b->start) - (a->start < b->start);
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    /* By where it stands: which of them is taken matters less than that names of any length cost nothing. */
    return (a->name > b->name) - (a->name < b->name);
}

static void drop_aliases(struct symbol_table *table) {
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++)
        if (kept == 0 || table->entries[i].start != table->entries[kept - 1].start)
            table->entries[kept++] = table->entries[i];
        else if (table->entries[kept - 1].size_bytes == 0)
            table->entries[kept - 1].size_bytes = table->entries[i].size_bytes;
    table->count = kept;
}

enum status symbol_table_load(struct elf_file *file, struct elf_file *debug, struct symbol_table **result) {
    struct source sources[3];
    size_t source_count = 0;
    size_t capacity = 0;
    *result = NULL;
    if (debug != NULL && open_source(debug, ".symtab", ".strtab", &sources[source_count]) == STATUS_OK)
        source_count++;
    if (open_source(file, ".symtab", ".strtab", &sources[source_count]) == STATUS_OK)
        source_count++;
    if (open_source(file, ".dynsym", ".dynstr", &sources[source_count]) == STATUS_OK)
        source_count++;
    for (size_t i = 0; i < source_count; i++)
        capacity += sources[i].symbols.size_bytes / sizeof(Elf64_Sym);
    if (capacity == 0)
        return STATUS_NOT_FOUND;
    struct symbol_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return STATUS_FAILED;
    table->capacity = capacity < SYMBOLS_MAX ? capacity : SYMBOLS_MAX;
    table->entries = calloc(table->capacity, sizeof *table->entries);
    if (table->entries == NULL) {
        symbol_table_free(table);
        return STATUS_FAILED;
    }
    for (size_t i = 0; i < source_count; i++)
        add_symbols(table, &sources[i]);
    qsort(table->entries, table->count, sizeof *table->entries, compare_entries);
    drop_aliases(table);
    *result = table;
    return STATUS_OK;
}

void symbol_table_free(struct symbol_table *table) {
    if (table == NULL)
        return;
    free(table->entries);
    free(table);
}

bool symbol_table_has_local(struct elf_file *file) {
    uint64_t address = 0, size_bytes = 0;
    return elf_file_find_section(file, ".symtab", &address, &size_bytes) == STATUS_OK && size_bytes > 0;
}

enum status symbol_table_find(const struct symbol_table *table, uint64_t address, struct symbol *symbol) {
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->entries[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return STATUS_NOT_FOUND;
    const struct entry *entry = &table->entries[low - 1];
    uint64_t offset = address - entry->start;
    if (offset >= (entry->size_bytes > 0 ? entry->size_bytes : UNSIZED_MAX_BYTES))
        return STATUS_NOT_FOUND;
    *symbol = (struct symbol){.start = entry->start, .size_bytes = entry->size_bytes, .name = entry->name};
    return STATUS_OK;
}
