/* Symbols of an ELF object: as it is mapped in a target's memory (needs no file), or in its file. */
#ifndef STROBE_ELF_ELF_IMAGE_H
#define STROBE_ELF_ELF_IMAGE_H

#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One object mapped into a target. */
struct elf_image {
    struct memory *memory; /* borrowed */
    remote_addr base;      /* start of the mapping of file offset 0 */
    uint64_t load_bias;    /* what to add to an address in the file: base - page-aligned p_vaddr of the first PT_LOAD */
    bool is_64bit;
    uint16_t machine;
    remote_addr start, end;                            /* the span of its PT_LOAD segments */
    remote_addr symbols, strings, gnu_hash, sysv_hash; /* from PT_DYNAMIC; 0 when absent */
    uint64_t strings_size;
    remote_addr dynamic; /* PT_DYNAMIC; 0 when absent */
    size_t dynamic_count;
};

/* Reads the headers at `base`. STATUS_DAMAGED when no ELF object stands there. A 32-bit object opens with `is_64bit`
 * false and has no symbols. */
enum status elf_image_open(struct elf_image *image, struct memory *memory, remote_addr base) MUST_USE;

/* The run-time address of a symbol that the object defines in its dynamic symbol table (GNU or SysV hash). */
enum status elf_image_find(struct elf_image *image, const char *name, remote_addr *address) MUST_USE;

/* Whether the object wants to be loaded with a library whose name begins with `prefix` (DT_NEEDED). */
bool elf_image_needs(struct elf_image *image, const char *prefix);

/* An object's file (libelf). */
struct elf_file;

/* What the system wants to know of an executable before it runs it. */
struct elf_program {
    bool is_64bit;
    uint16_t machine;
    bool is_dynamic;       /* it names a program interpreter (a dynamic linker) */
    char interpreter[256]; /* PT_INTERP; "" when there is none */
};
/* Keeps its own descriptor; fd stays the caller's. STATUS_DAMAGED when it is no ELF file. */
enum status elf_file_open(int fd, struct elf_file **file) MUST_USE;
void elf_file_free(struct elf_file *file);
void elf_file_describe(struct elf_file *file, struct elf_program *program);
/* Address in the file's own numbering (add the load bias) of a symbol in .symtab or .dynsym. */
enum status elf_file_find_symbol(struct elf_file *file, const char *name, uint64_t *address) MUST_USE;
/* The same and the size of a section. */
enum status elf_file_find_section(struct elf_file *file, const char *name, uint64_t *address,
                                  uint64_t *size_bytes) MUST_USE;

/* A section's content, owned by the file. */
struct elf_section {
    uint64_t address; /* in the file's own numbering; 0 when it is not loaded */
    const uint8_t *data;
    size_t size_bytes;
};
/* STATUS_NOT_FOUND when there is none of this name, or when it has no content in the file. */
enum status elf_file_read_section(struct elf_file *file, const char *name, struct elf_section *section) MUST_USE;

/* A PT_LOAD or PT_DYNAMIC segment. */
struct elf_segment {
    uint64_t address;
    uint64_t file_offset;
    uint64_t file_bytes;
    bool executable;
    bool writable;
    bool dynamic; /* PT_DYNAMIC */
};
enum { ELF_SEGMENTS_MAX = 64 };
/* Those that have bytes in the file, in its order. */
size_t elf_file_segments(struct elf_file *file, struct elf_segment segments[ELF_SEGMENTS_MAX]);

/* The bytes that are loaded at an address, as far as they come from the file and are not relocated. */
enum status elf_file_read(struct elf_file *file, uint64_t address, void *buffer, size_t size_bytes) MUST_USE;
/* The address, in the file's own numbering, of code at an offset in the file. */
enum status elf_file_place(struct elf_file *file, uint64_t file_offset, uint64_t *address) MUST_USE;

/* As in the ELF header: EM_X86_64, EM_AARCH64, … */
uint16_t elf_file_machine(struct elf_file *file);

#endif
