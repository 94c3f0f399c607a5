/* Dynamic symbols of an object mapped into a target, read from the target's memory alone, so that it does not matter
 * what became of the file. The layouts are those of the System V ABI (gABI chapters 4 and 5) and of DT_GNU_HASH. */
#include "elf/elf_image.h"

#include <elf.h>
#include <string.h>

enum {
    PROGRAM_HEADERS_MAX = 128,
    DYNAMIC_ENTRIES_MAX = 512,
    CHAIN_STEPS_MAX = 1 << 12, /* a chain holds the few symbols of one bucket */
    HASH_WORDS_MAX = 1 << 24,
    NAME_MAX_BYTES = 256,
    NEEDED_MAX = 128,
};

static const uint64_t page_mask = 4095;

/* The part of the object that is mapped, as run-time addresses. */
struct extent {
    remote_addr start, end;
};

static bool inside(const struct extent *extent, remote_addr address) {
    return address >= extent->start && address < extent->end;
}

static enum status check_header(struct elf_image *image, const Elf64_Ehdr *header) {
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_DATA] != ELFDATA2LSB)
        return STATUS_DAMAGED;
    /* e_machine stands at the same place in both classes. */
    image->machine = header->e_machine;
    image->is_64bit = header->e_ident[EI_CLASS] == ELFCLASS64;
    if (!image->is_64bit)
        return header->e_ident[EI_CLASS] == ELFCLASS32 ? STATUS_OK : STATUS_DAMAGED;
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 || header->e_phnum > PROGRAM_HEADERS_MAX)
        return STATUS_DAMAGED;
    return STATUS_OK;
}

/* Finds the load bias and the extent. The segment that holds file offset 0 is the one mapped at `base`. */
static enum status place_segments(struct elf_image *image, const Elf64_Phdr *segments, size_t count,
                                  struct extent *extent) {
    bool placed = false;
    for (size_t i = 0; i < count && !placed; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset <= page_mask) {
            image->load_bias = image->base - (segments[i].p_vaddr - segments[i].p_offset);
            placed = true;
        }
    if (!placed)
        return STATUS_DAMAGED;
    *extent = (struct extent){.start = UINT64_MAX};
    for (size_t i = 0; i < count; i++) {
        if (segments[i].p_type != PT_LOAD)
            continue;
        remote_addr start = image->load_bias + segments[i].p_vaddr;
        remote_addr end = start + segments[i].p_memsz;
        if (end < start)
            return STATUS_DAMAGED;
        extent->start = start < extent->start ? start : extent->start;
        extent->end = end > extent->end ? end : extent->end;
    }
    return STATUS_OK;
}

/* glibc relocates the pointers of a dynamic section in place (except a read-only one); musl does not, and before the
 * dynamic linker has run they are not relocated either. 0 when neither reading points into the object. */
static remote_addr dynamic_pointer(const struct elf_image *image, const struct extent *extent, uint64_t value) {
    if (inside(extent, value))
        return value;
    remote_addr relocated = value + image->load_bias;
    return inside(extent, relocated) ? relocated : 0;
}

static enum status read_dynamic(struct elf_image *image, const Elf64_Phdr *segment, const struct extent *extent) {
    Elf64_Dyn entries[DYNAMIC_ENTRIES_MAX];
    uint64_t count = segment->p_memsz / sizeof entries[0];
    if (count > DYNAMIC_ENTRIES_MAX)
        count = DYNAMIC_ENTRIES_MAX;
    image->dynamic = image->load_bias + segment->p_vaddr;
    image->dynamic_count = (size_t)count;
    TRY(memory_read(image->memory, image->dynamic, entries, (size_t)count * sizeof entries[0]));
    for (uint64_t i = 0; i < count && entries[i].d_tag != DT_NULL; i++) {
        uint64_t value = entries[i].d_un.d_val;
        switch (entries[i].d_tag) {
        case DT_SYMTAB:
            image->symbols = dynamic_pointer(image, extent, value);
            break;
        case DT_STRTAB:
            image->strings = dynamic_pointer(image, extent, value);
            break;
        case DT_STRSZ:
            image->strings_size = value;
            break;
        case DT_HASH:
            image->sysv_hash = dynamic_pointer(image, extent, value);
            break;
        case DT_GNU_HASH:
            image->gnu_hash = dynamic_pointer(image, extent, value);
            break;
        default:
            break;
        }
    }
    return STATUS_OK;
}

enum status elf_image_open(struct elf_image *image, struct memory *memory, remote_addr base) {
    *image = (struct elf_image){.memory = memory, .base = base};
    Elf64_Ehdr header;
    TRY(memory_read(memory, base, &header, sizeof header));
    TRY(check_header(image, &header));
    if (!image->is_64bit)
        return STATUS_OK;
    Elf64_Phdr segments[PROGRAM_HEADERS_MAX];
    size_t count = header.e_phnum;
    TRY(memory_read(memory, base + header.e_phoff, segments, count * sizeof segments[0]));
    struct extent extent;
    TRY(place_segments(image, segments, count, &extent));
    image->start = extent.start;
    image->end = extent.end;
    for (size_t i = 0; i < count; i++)
        if (segments[i].p_type == PT_DYNAMIC)
            return read_dynamic(image, &segments[i], &extent);
    /* A static executable: no dynamic symbols. */
    return STATUS_OK;
}

/* Whether the string table has exactly this name at the offset. */
static bool name_is(struct elf_image *image, uint32_t offset, const char *name) {
    char found[NAME_MAX_BYTES];
    size_t size = strlen(name) + 1;
    if (size > sizeof found || offset >= image->strings_size || size > image->strings_size - offset)
        return false;
    return memory_read(image->memory, image->strings + offset, found, size) == STATUS_OK &&
           memcmp(found, name, size) == 0;
}

/* STATUS_NOT_FOUND when the symbol has another name or is not defined here. */
static enum status check_symbol(struct elf_image *image, uint64_t index, const char *name, remote_addr *address) {
    Elf64_Sym symbol;
    TRY(memory_read(image->memory, image->symbols + index * sizeof symbol, &symbol, sizeof symbol));
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) == STT_TLS ||
        !name_is(image, symbol.st_name, name))
        return STATUS_NOT_FOUND;
    *address = symbol.st_shndx == SHN_ABS ? symbol.st_value : symbol.st_value + image->load_bias;
    return STATUS_OK;
}

static uint32_t hash_gnu(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (uint8_t)*name;
    return hash;
}

/* Walks the chain from symbol `index`; the lowest bit of a hash marks its end. */
static enum status walk_gnu_chain(struct elf_image *image, remote_addr chain, uint32_t first, uint32_t index,
                                  uint32_t hash, const char *name, remote_addr *address) {
    for (uint32_t step = 0; step < CHAIN_STEPS_MAX; step++) {
        uint32_t entry = 0;
        TRY(memory_read_u32(image->memory, chain + 4 * (uint64_t)(index - first), &entry));
        if ((entry | 1) == (hash | 1)) {
            enum status status = check_symbol(image, index, name, address);
            if (status != STATUS_NOT_FOUND)
                return status;
        }
        if (entry & 1)
            return STATUS_NOT_FOUND;
        index++;
    }
    return STATUS_LIMIT;
}

/* u32 bucket count, first symbol, bloom words, bloom shift; u64 bloom[]; u32 buckets[]; u32 chain[] */
static enum status find_gnu(struct elf_image *image, const char *name, remote_addr *address) {
    uint32_t header[4];
    TRY(memory_read(image->memory, image->gnu_hash, header, sizeof header));
    uint32_t bucket_count = header[0], first = header[1], bloom_count = header[2], shift = header[3];
    if (bucket_count == 0 || bloom_count == 0 || bucket_count > HASH_WORDS_MAX || bloom_count > HASH_WORDS_MAX ||
        shift > 31)
        return STATUS_DAMAGED;
    remote_addr bloom = image->gnu_hash + sizeof header;
    remote_addr buckets = bloom + 8 * (uint64_t)bloom_count;
    remote_addr chain = buckets + 4 * (uint64_t)bucket_count;

    uint32_t hash = hash_gnu(name);
    uint64_t word = 0, bits = (uint64_t)1 << (hash % 64) | (uint64_t)1 << ((hash >> shift) % 64);
    TRY(memory_read_u64(image->memory, bloom + 8 * (uint64_t)(hash / 64 % bloom_count), &word));
    if ((word & bits) != bits)
        return STATUS_NOT_FOUND;
    uint32_t index = 0;
    TRY(memory_read_u32(image->memory, buckets + 4 * (uint64_t)(hash % bucket_count), &index));
    if (index == 0)
        return STATUS_NOT_FOUND;
    if (index < first)
        return STATUS_DAMAGED;
    return walk_gnu_chain(image, chain, first, index, hash, name, address);
}

static uint32_t hash_sysv(const char *name) {
    uint32_t hash = 0;
    for (; *name != '\0'; name++) {
        hash = (hash << 4) + (uint8_t)*name;
        uint32_t top = hash & 0xf0000000u;
        hash = (hash ^ top >> 24) & ~top;
    }
    return hash;
}

/* u32 bucket count, chain count; u32 buckets[]; u32 chain[] */
static enum status find_sysv(struct elf_image *image, const char *name, remote_addr *address) {
    uint32_t header[2];
    TRY(memory_read(image->memory, image->sysv_hash, header, sizeof header));
    uint32_t bucket_count = header[0], chain_count = header[1];
    if (bucket_count == 0 || bucket_count > HASH_WORDS_MAX || chain_count > HASH_WORDS_MAX)
        return STATUS_DAMAGED;
    remote_addr buckets = image->sysv_hash + sizeof header;
    remote_addr chain = buckets + 4 * (uint64_t)bucket_count;
    uint32_t index = 0;
    TRY(memory_read_u32(image->memory, buckets + 4 * (uint64_t)(hash_sysv(name) % bucket_count), &index));
    for (uint32_t step = 0; index != STN_UNDEF; step++) {
        if (step >= CHAIN_STEPS_MAX)
            return STATUS_LIMIT;
        if (index >= chain_count)
            return STATUS_DAMAGED;
        enum status status = check_symbol(image, index, name, address);
        if (status != STATUS_NOT_FOUND)
            return status;
        TRY(memory_read_u32(image->memory, chain + 4 * (uint64_t)index, &index));
    }
    return STATUS_NOT_FOUND;
}

enum status elf_image_find(struct elf_image *image, const char *name, remote_addr *address) {
    if (image->symbols == 0 || image->strings == 0)
        return STATUS_NOT_FOUND;
    if (image->gnu_hash != 0)
        return find_gnu(image, name, address);
    if (image->sysv_hash != 0)
        return find_sysv(image, name, address);
    return STATUS_NOT_FOUND;
}

bool elf_image_needs(struct elf_image *image, const char *prefix) {
    size_t length = strlen(prefix);
    char found[NAME_MAX_BYTES];
    size_t needed = 0;
    if (length > sizeof found || image->strings == 0)
        return false;
    for (size_t i = 0; i < image->dynamic_count && needed < NEEDED_MAX; i++) {
        Elf64_Dyn entry;
        if (memory_read(image->memory, image->dynamic + i * sizeof entry, &entry, sizeof entry) != STATUS_OK ||
            entry.d_tag == DT_NULL)
            return false;
        if (entry.d_tag != DT_NEEDED)
            continue;
        needed++;
        if (entry.d_un.d_val < image->strings_size && length <= image->strings_size - entry.d_un.d_val &&
            memory_read(image->memory, image->strings + entry.d_un.d_val, found, length) == STATUS_OK &&
            memcmp(found, prefix, length) == 0)
            return true;
    }
    return false;
}
