#include "elf/elf_image.h"

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sections are read into memory as a whole; the largest executables there are have string tables of this order. */
enum { SECTION_LIMIT_BYTES = 1 << 28, SECTIONS_MAX = 1 << 16, PROGRAM_HEADERS_MAX = 1 << 10 };

struct elf_file {
    int fd;
    uint64_t size_bytes;
    Elf *elf;
    /* For elf_file_read. */
    bool has_segments;
    size_t segment_count;
    struct elf_segment segments[ELF_SEGMENTS_MAX];
};

enum status elf_file_open(int fd, struct elf_file **result) {
    *result = NULL;
    if (elf_version(EV_CURRENT) == EV_NONE)
        return STATUS_FAILED;
    struct elf_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return STATUS_FAILED;
    struct stat status;
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd >= 0 && fstat(file->fd, &status) == 0)
        file->size_bytes = (uint64_t)status.st_size;
    /* Read and not mapped: a file that is cut short meanwhile would be a SIGBUS. */
    file->elf = file->fd >= 0 ? elf_begin(file->fd, ELF_C_READ, NULL) : NULL;
    if (file->elf == NULL || elf_kind(file->elf) != ELF_K_ELF) {
        elf_file_free(file);
        return STATUS_DAMAGED;
    }
    *result = file;
    return STATUS_OK;
}

void elf_file_free(struct elf_file *file) {
    if (file == NULL)
        return;
    (void)elf_end(file->elf);
    if (file->fd >= 0)
        (void)close(file->fd);
    free(file);
}

static void read_interpreter(const struct elf_file *file, const GElf_Phdr *segment, struct elf_program *program) {
    size_t size = segment->p_filesz < sizeof program->interpreter ? segment->p_filesz : sizeof program->interpreter - 1;
    program->is_dynamic = true;
    if (pread(file->fd, program->interpreter, size, (off_t)segment->p_offset) != (ssize_t)size)
        size = 0;
    program->interpreter[size] = '\0';
}

void elf_file_describe(struct elf_file *file, struct elf_program *program) {
    GElf_Ehdr header;
    size_t count = 0;
    *program = (struct elf_program){0};
    if (gelf_getehdr(file->elf, &header) == NULL || elf_getphdrnum(file->elf, &count) != 0)
        return;
    program->is_64bit = gelf_getclass(file->elf) == ELFCLASS64;
    program->machine = header.e_machine;
    for (size_t i = 0; i < count && i < PROGRAM_HEADERS_MAX && !program->is_dynamic; i++) {
        GElf_Phdr segment;
        if (gelf_getphdr(file->elf, (int)i, &segment) != NULL && segment.p_type == PT_INTERP)
            read_interpreter(file, &segment, program);
    }
}

/* The content of a section, in libelf's keeping; NULL for one that has none or claims too much. */
static Elf_Data *section_data(const struct elf_file *file, Elf_Scn *section, const GElf_Shdr *header) {
    if (header->sh_type == SHT_NOBITS || header->sh_size == 0 || header->sh_size > SECTION_LIMIT_BYTES ||
        header->sh_size > file->size_bytes || header->sh_offset > file->size_bytes - header->sh_size)
        return NULL;
    return elf_getdata(section, NULL);
}

static bool name_at(const Elf_Data *strings, uint64_t offset, const char *name) {
    size_t size = strlen(name) + 1;
    return strings != NULL && strings->d_buf != NULL && offset < strings->d_size && size <= strings->d_size - offset &&
           memcmp((const char *)strings->d_buf + offset, name, size) == 0;
}

static enum status find_in_table(const struct elf_file *file, Elf_Scn *section, const GElf_Shdr *header,
                                 const char *name, uint64_t *address) {
    Elf_Data *symbols = section_data(file, section, header);
    Elf_Scn *string_section = elf_getscn(file->elf, header->sh_link);
    GElf_Shdr string_header;
    if (symbols == NULL || string_section == NULL || gelf_getshdr(string_section, &string_header) == NULL ||
        string_header.sh_type != SHT_STRTAB)
        return STATUS_NOT_FOUND;
    Elf_Data *strings = section_data(file, string_section, &string_header);
    size_t entry_size = gelf_fsize(file->elf, ELF_T_SYM, 1, EV_CURRENT);
    size_t count = entry_size > 0 ? symbols->d_size / entry_size : 0;
    if (count > INT32_MAX)
        return STATUS_LIMIT;
    for (int i = 0; i < (int)count; i++) {
        GElf_Sym symbol;
        if (gelf_getsym(symbols, i, &symbol) == NULL)
            return STATUS_DAMAGED;
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS && GELF_ST_TYPE(symbol.st_info) != STT_TLS &&
            name_at(strings, symbol.st_name, name)) {
            *address = symbol.st_value;
            return STATUS_OK;
        }
    }
    return STATUS_NOT_FOUND;
}

enum status elf_file_find_symbol(struct elf_file *file, const char *name, uint64_t *address) {
    Elf_Scn *section = NULL;
    bool searched_symtab = false;
    bool searched_dynsym = false;
    for (int i = 0; i < SECTIONS_MAX && (section = elf_nextscn(file->elf, section)) != NULL; i++) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == NULL)
            return STATUS_DAMAGED;
        /* An object has one of each (gABI, chapter 4); one that claims hundreds only wants them all to be read. */
        bool *searched = header.sh_type == SHT_SYMTAB   ? &searched_symtab
                         : header.sh_type == SHT_DYNSYM ? &searched_dynsym
                                                        : NULL;
        if (searched == NULL || *searched)
            continue;
        *searched = true;
        enum status status = find_in_table(file, section, &header, name, address);
        if (status == STATUS_OK)
            return STATUS_OK;
    }
    return STATUS_NOT_FOUND;
}

/* NULL: none of this name. */
static Elf_Scn *find_section(struct elf_file *file, const char *name, GElf_Shdr *header) {
    size_t names_index = 0;
    GElf_Shdr names_header;
    if (elf_getshdrstrndx(file->elf, &names_index) != 0)
        return NULL;
    Elf_Scn *names_section = elf_getscn(file->elf, names_index);
    if (names_section == NULL || gelf_getshdr(names_section, &names_header) == NULL)
        return NULL;
    Elf_Data *names = section_data(file, names_section, &names_header);
    Elf_Scn *section = NULL;
    for (int i = 0; i < SECTIONS_MAX && (section = elf_nextscn(file->elf, section)) != NULL; i++) {
        if (gelf_getshdr(section, header) == NULL)
            return NULL;
        if (name_at(names, header->sh_name, name))
            return section;
    }
    return NULL;
}

enum status elf_file_find_section(struct elf_file *file, const char *name, uint64_t *address, uint64_t *size_bytes) {
    GElf_Shdr header;
    if (find_section(file, name, &header) == NULL)
        return STATUS_NOT_FOUND;
    *address = header.sh_addr;
    *size_bytes = header.sh_size;
    return STATUS_OK;
}

enum status elf_file_read_section(struct elf_file *file, const char *name, struct elf_section *result) {
    GElf_Shdr header;
    Elf_Scn *section = find_section(file, name, &header);
    Elf_Data *data = section != NULL ? section_data(file, section, &header) : NULL;
    if (data == NULL || data->d_buf == NULL)
        return STATUS_NOT_FOUND;
    *result = (struct elf_section){.address = header.sh_addr, .data = data->d_buf, .size_bytes = data->d_size};
    return STATUS_OK;
}

size_t elf_file_segments(struct elf_file *file, struct elf_segment segments[ELF_SEGMENTS_MAX]) {
    size_t headers = 0, count = 0;
    if (elf_getphdrnum(file->elf, &headers) != 0)
        return 0;
    for (size_t i = 0; i < headers && i < PROGRAM_HEADERS_MAX && count < ELF_SEGMENTS_MAX; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(file->elf, (int)i, &header) == NULL)
            break;
        if ((header.p_type != PT_LOAD && header.p_type != PT_DYNAMIC) || header.p_filesz == 0 ||
            header.p_offset > file->size_bytes || header.p_filesz > file->size_bytes - header.p_offset ||
            header.p_vaddr > UINT64_MAX - header.p_filesz)
            continue;
        segments[count++] = (struct elf_segment){
            .address = header.p_vaddr,
            .file_offset = header.p_offset,
            .file_bytes = header.p_filesz,
            .executable = (header.p_flags & PF_X) != 0,
            .writable = (header.p_flags & PF_W) != 0,
            .dynamic = header.p_type == PT_DYNAMIC,
        };
    }
    return count;
}

enum status elf_file_read(struct elf_file *file, uint64_t address, void *buffer, size_t size_bytes) {
    if (!file->has_segments) {
        file->segment_count = elf_file_segments(file, file->segments);
        file->has_segments = true;
    }
    for (size_t i = 0; i < file->segment_count; i++) {
        const struct elf_segment *segment = &file->segments[i];
        if (segment->dynamic || address < segment->address || address - segment->address >= segment->file_bytes)
            continue;
        uint64_t offset = address - segment->address;
        if (size_bytes > segment->file_bytes - offset)
            return STATUS_NOT_FOUND;
        ssize_t size = pread(file->fd, buffer, size_bytes, (off_t)(segment->file_offset + offset));
        return size == (ssize_t)size_bytes ? STATUS_OK : STATUS_DAMAGED;
    }
    return STATUS_NOT_FOUND;
}

enum status elf_file_place(struct elf_file *file, uint64_t file_offset, uint64_t *address) {
    struct elf_segment segments[ELF_SEGMENTS_MAX];
    size_t count = elf_file_segments(file, segments);
    for (size_t i = 0; i < count; i++) {
        if (segments[i].dynamic || !segments[i].executable || file_offset < segments[i].file_offset ||
            file_offset - segments[i].file_offset >= segments[i].file_bytes)
            continue;
        *address = segments[i].address + (file_offset - segments[i].file_offset);
        return STATUS_OK;
    }
    return STATUS_NOT_FOUND;
}

uint16_t elf_file_machine(struct elf_file *file) {
    GElf_Ehdr header;
    return gelf_getehdr(file->elf, &header) != NULL ? header.e_machine : (uint16_t)EM_NONE;
}
