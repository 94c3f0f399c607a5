#include "elf/elf_image.h"

#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* In .symtab only, and in a section of its own. */
static int hidden_number __attribute__((used, section(".strobetest"))) = 4711;

static int keep_bias(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    *(uint64_t *)argument = info->dlpi_addr;
    return 1; /* the first is the program itself */
}

static struct elf_file *open_self(void) {
    struct elf_file *file = NULL;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(elf_file_open(fd, &file), STATUS_OK);
    (void)close(fd);
    return file;
}

static void test_finds_a_symbol_that_is_not_exported(void **state) {
    (void)state;
    uint64_t bias = 0, address = 0;
    (void)dl_iterate_phdr(keep_bias, &bias);
    struct elf_file *file = open_self();
    assert_int_equal(elf_file_find_symbol(file, "hidden_number", &address), STATUS_OK);
    assert_int_equal(address + bias, (uintptr_t)&hidden_number);
    assert_int_equal(elf_file_find_symbol(file, "main", &address), STATUS_OK);
    assert_int_equal(elf_file_find_symbol(file, "no_such_symbol", &address), STATUS_NOT_FOUND);
    elf_file_free(file);
}

static void test_finds_a_section(void **state) {
    (void)state;
    uint64_t bias = 0, address = 0, size_bytes = 0;
    (void)dl_iterate_phdr(keep_bias, &bias);
    struct elf_file *file = open_self();
    assert_int_equal(elf_file_find_section(file, ".strobetest", &address, &size_bytes), STATUS_OK);
    assert_int_equal(address + bias, (uintptr_t)&hidden_number);
    assert_int_equal(size_bytes, sizeof hidden_number);
    assert_int_equal(elf_file_find_section(file, ".strobe", &address, &size_bytes), STATUS_NOT_FOUND);
    elf_file_free(file);
}

static void use(int fd) {
    struct elf_file *file = NULL;
    uint64_t address = 0, size_bytes = 0;
    if (elf_file_open(fd, &file) == STATUS_OK) {
        (void)!elf_file_find_symbol(file, "hidden_number", &address);
        (void)!elf_file_find_section(file, ".strobetest", &address, &size_bytes);
    }
    elf_file_free(file);
}

static void test_refuses_what_is_no_elf_file(void **state) {
    (void)state;
    struct elf_file *file = NULL;
    static const char *const contents[] = {"", "#!/bin/sh\n", "\177ELF", "!<arch>\n"};
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        int fd = memfd_create("none", MFD_CLOEXEC);
        assert_int_equal(write(fd, contents[i], strlen(contents[i])), strlen(contents[i]));
        assert_int_equal(elf_file_open(fd, &file), STATUS_DAMAGED);
        assert_null(file);
        (void)close(fd);
    }
    assert_int_equal(elf_file_open(-1, &file), STATUS_DAMAGED);
}

/* This program cut off at every few bytes, and with its headers spoiled byte by byte: any answer will do. */
static void test_survives_damaged_files(void **state) {
    (void)state;
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status;
    assert_int_equal(fstat(self, &status), 0);
    size_t size = (size_t)status.st_size;
    uint8_t *bytes = malloc(size);
    assert_int_equal(read(self, bytes, size), size);
    (void)close(self);
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    assert_int_equal(write(fd, bytes, size), size);
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)(void *)bytes;
    size_t tables[] = {0, (size_t)header->e_shoff};
    size_t table_sizes[] = {sizeof *header, (size_t)header->e_shnum * header->e_shentsize};
    for (size_t table = 0; table < 2; table++)
        for (size_t i = 0; i < table_sizes[table]; i++) {
            size_t at = tables[table] + i;
            static const uint8_t values[] = {0x00, 0x80, 0xff};
            for (size_t k = 0; k < sizeof values; k++) {
                assert_int_equal(pwrite(fd, &values[k], 1, (off_t)at), 1);
                use(fd);
            }
            assert_int_equal(pwrite(fd, bytes + at, 1, (off_t)at), 1);
        }
    for (size_t at = size; at > 16; at -= at / 50 + 1) {
        assert_int_equal(ftruncate(fd, (off_t)at), 0);
        use(fd);
    }
    (void)close(fd);
    free(bytes);
}

/* A sparse file whose many symbol tables all claim the same ten megabytes. */
static void test_does_not_read_table_after_table(void **state) {
    (void)state;
    enum { TABLES = 200, TABLE_BYTES = 10 << 20, LIMIT_KIB = 512 << 10 };
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_shoff = sizeof header,
        .e_ehsize = sizeof header,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = TABLES,
    };
    Elf64_Shdr sections[TABLES] = {{0}};
    for (int i = 1; i < TABLES; i++)
        sections[i] = (Elf64_Shdr){
            .sh_type = i == 1  ? SHT_STRTAB
                       : i % 2 ? SHT_SYMTAB
                               : SHT_DYNSYM,
            .sh_link = 1,
            .sh_offset = sizeof header + sizeof sections,
            .sh_size = i == 1 ? 8 : TABLE_BYTES / sizeof(Elf64_Sym) * sizeof(Elf64_Sym),
            .sh_entsize = sizeof(Elf64_Sym),
        };
    int fd = memfd_create("sparse", MFD_CLOEXEC);
    assert_int_equal(write(fd, &header, sizeof header), sizeof header);
    assert_int_equal(write(fd, sections, sizeof sections), sizeof sections);
    assert_int_equal(ftruncate(fd, sizeof header + sizeof sections + TABLE_BYTES), 0);
    struct elf_file *file = NULL;
    struct rusage usage;
    uint64_t address = 0;
    assert_int_equal(elf_file_open(fd, &file), STATUS_OK);
    assert_int_equal(elf_file_find_symbol(file, "none", &address), STATUS_NOT_FOUND);
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_true(usage.ru_maxrss < LIMIT_KIB);
    elf_file_free(file);
    (void)close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_a_symbol_that_is_not_exported), cmocka_unit_test(test_finds_a_section),
        cmocka_unit_test(test_refuses_what_is_no_elf_file),         cmocka_unit_test(test_survives_damaged_files),
        cmocka_unit_test(test_does_not_read_table_after_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
