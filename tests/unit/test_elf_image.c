#include "elf/elf_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

/* This program's own memory, read through the kernel so that a bad address is an error and no crash. */
static enum status read_own(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    (void)memory;
    struct iovec local = {buffer, size_bytes}, remote = {(void *)(uintptr_t)address, size_bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size_bytes ? STATUS_OK : STATUS_UNREADABLE;
}

static struct memory own_memory = {.read = read_own};

/* Memory that is nothing but one array. */
struct image_memory {
    struct memory memory;
    remote_addr base;
    uint8_t *bytes;
    size_t size_bytes;
    size_t reads;
};

static enum status read_image(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct image_memory *image = (struct image_memory *)memory;
    image->reads++;
    if (address < image->base || address - image->base > image->size_bytes ||
        size_bytes > image->size_bytes - (size_t)(address - image->base))
        return STATUS_UNREADABLE;
    memcpy(buffer, image->bytes + (address - image->base), size_bytes);
    return STATUS_OK;
}

static int check_object(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || segment->p_offset != 0)
            continue;
        struct elf_image image;
        remote_addr base = info->dlpi_addr + segment->p_vaddr;
        assert_int_equal(elf_image_open(&image, &own_memory, base), STATUS_OK);
        assert_int_equal(image.load_bias, info->dlpi_addr);
        assert_true(image.is_64bit);
        ++*(size_t *)argument;
    }
    return 0;
}

static void test_load_bias_is_the_dynamic_linkers(void **state) {
    (void)state;
    size_t count = 0;
    (void)dl_iterate_phdr(check_object, &count);
    assert_true(count >= 3);
}

static void open_holding(const void *address, struct elf_image *image) {
    Dl_info info;
    assert_int_not_equal(dladdr(address, &info), 0);
    assert_int_equal(elf_image_open(image, &own_memory, (remote_addr)(uintptr_t)info.dli_fbase), STATUS_OK);
}

static void test_finds_what_dlsym_finds(void **state) {
    (void)state;
    static const char *const names[] = {"getenv", "stdin", "environ", "_exit", "readlinkat", "qsort", "signgam"};
    struct elf_image image;
    open_holding(dlsym(RTLD_DEFAULT, "getenv"), &image);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *expected = dlsym(RTLD_DEFAULT, names[i]);
        Dl_info info;
        remote_addr found = 0;
        /* A copy relocation moves data into the executable, and dlsym says so. */
        if (expected == NULL || dladdr(expected, &info) == 0 || (uintptr_t)info.dli_fbase != image.base)
            continue;
        assert_int_equal(elf_image_find(&image, names[i], &found), STATUS_OK);
        assert_int_equal(found, (uintptr_t)expected);
    }
    remote_addr found = 0;
    assert_int_equal(elf_image_find(&image, "no_such_symbol_in_libc", &found), STATUS_NOT_FOUND);
    assert_int_equal(elf_image_find(&image, "", &found), STATUS_NOT_FOUND);
    /* Used by cmocka, defined in libc. */
    open_holding(dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests"), &image);
    assert_int_equal(elf_image_find(&image, "_cmocka_run_group_tests", &found), STATUS_OK);
    assert_int_equal(elf_image_find(&image, "free", &found), STATUS_NOT_FOUND);
    assert_true(elf_image_needs(&image, "libc.so"));
    assert_false(elf_image_needs(&image, "libpython"));
}

/* The vDSO's dynamic section is never relocated, and has a SysV hash table on older kernels. */
static void test_pointers_that_were_not_relocated(void **state) {
    (void)state;
    remote_addr base = getauxval(AT_SYSINFO_EHDR);
    if (base == 0)
        skip();
    struct elf_image image;
    remote_addr found = 0;
    assert_int_equal(elf_image_open(&image, &own_memory, base), STATUS_OK);
#ifdef __x86_64__
    assert_int_equal(elf_image_find(&image, "__vdso_clock_gettime", &found), STATUS_OK);
#else
    assert_int_equal(elf_image_find(&image, "__kernel_clock_gettime", &found), STATUS_OK);
#endif
    assert_true(found > image.base && found < image.end);
}

/* A small object made by hand, with either hash table:
 *   0     Elf64_Ehdr, two Elf64_Phdr
 *   0x100 dynamic section
 *   0x200 symbols (null, "alpha", "beta" undefined, "gamma" absolute, "alpha" shadowed)
 *   0x300 strings, 0x380 SysV hash, 0x400 GNU hash */
enum { IMAGE_BYTES = 0x800, USED_BYTES = 0x480, BASE = 0x10000000, LINKED_AT = 0x400000 };

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (uint8_t)*name;
    return hash;
}

static void put(uint8_t *bytes, size_t at, const void *data, size_t size) {
    memcpy(bytes + at, data, size);
}

static void build_image(uint8_t *bytes, bool with_gnu_hash) {
    memset(bytes, 0, IMAGE_BYTES);
    Elf64_Ehdr header = {
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_phoff = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 2,
    };
    Elf64_Phdr segments[] = {
        {.p_type = PT_LOAD, .p_vaddr = LINKED_AT, .p_filesz = IMAGE_BYTES, .p_memsz = IMAGE_BYTES},
        {.p_type = PT_DYNAMIC, .p_offset = 0x100, .p_vaddr = LINKED_AT + 0x100, .p_memsz = 6 * sizeof(Elf64_Dyn)},
    };
    Elf64_Dyn dynamic[] = {
        {DT_SYMTAB, {LINKED_AT + 0x200}},
        {DT_STRTAB, {LINKED_AT + 0x300}},
        {DT_STRSZ, {0x80}},
        {with_gnu_hash ? DT_GNU_HASH : DT_HASH, {LINKED_AT + (with_gnu_hash ? 0x400 : 0x380)}},
        {DT_NEEDED, {1}},
        {DT_NULL, {0}},
    };
    Elf64_Sym symbols[] = {
        {0},
        {.st_name = 1, .st_shndx = 5, .st_value = LINKED_AT + 0x123},
        {.st_name = 7, .st_shndx = SHN_UNDEF, .st_value = 1},
        {.st_name = 12, .st_shndx = SHN_ABS, .st_value = 77},
    };
    /* One bucket; its chain has all symbols. */
    uint32_t sysv[] = {1, 4, 3, 0, 0, 1, 2};
    uint32_t gnu[] = {
        1, 1, 1, 6, UINT32_MAX, UINT32_MAX, 1, gnu_hash("alpha") & ~1u, gnu_hash("beta") & ~1u, gnu_hash("gamma") | 1u};
    put(bytes, 0, &header, sizeof header);
    put(bytes, sizeof header, segments, sizeof segments);
    put(bytes, 0x100, dynamic, sizeof dynamic);
    put(bytes, 0x200, symbols, sizeof symbols);
    put(bytes, 0x300, "\0alpha\0beta\0gamma", 18);
    put(bytes, 0x380, sysv, sizeof sysv);
    put(bytes, 0x400, gnu, sizeof gnu);
}

static void test_both_hash_tables(void **state) {
    (void)state;
    static uint8_t bytes[IMAGE_BYTES];
    for (int with_gnu_hash = 0; with_gnu_hash < 2; with_gnu_hash++) {
        build_image(bytes, with_gnu_hash);
        struct image_memory memory = {{.read = read_image}, BASE, bytes, sizeof bytes, 0};
        struct elf_image image;
        remote_addr found = 0;
        assert_int_equal(elf_image_open(&image, &memory.memory, BASE), STATUS_OK);
        assert_int_equal(image.load_bias, BASE - LINKED_AT);
        assert_int_equal(image.machine, EM_X86_64);
        assert_int_equal(image.start, BASE);
        assert_int_equal(image.end, BASE + IMAGE_BYTES);
        assert_int_equal(elf_image_find(&image, "alpha", &found), STATUS_OK);
        assert_int_equal(found, BASE + 0x123);
        assert_int_equal(elf_image_find(&image, "beta", &found), STATUS_NOT_FOUND);
        assert_int_equal(elf_image_find(&image, "gamma", &found), STATUS_OK);
        assert_int_equal(found, 77);
        assert_int_equal(elf_image_find(&image, "delta", &found), STATUS_NOT_FOUND);
        assert_true(elf_image_needs(&image, "alp"));
        assert_false(elf_image_needs(&image, "beta"));
    }
}

static void test_what_is_no_object(void **state) {
    (void)state;
    static uint8_t bytes[IMAGE_BYTES];
    struct image_memory memory = {{.read = read_image}, BASE, bytes, sizeof bytes, 0};
    struct elf_image image;
    remote_addr found = 0;
    assert_int_equal(elf_image_open(&image, &memory.memory, BASE), STATUS_DAMAGED);
    assert_int_equal(elf_image_open(&image, &memory.memory, 0), STATUS_UNREADABLE);
    build_image(bytes, true);
    bytes[EI_CLASS] = ELFCLASS32;
    assert_int_equal(elf_image_open(&image, &memory.memory, BASE), STATUS_OK);
    assert_false(image.is_64bit);
    assert_int_equal(elf_image_find(&image, "alpha", &found), STATUS_NOT_FOUND);
    bytes[EI_CLASS] = 7;
    assert_int_equal(elf_image_open(&image, &memory.memory, BASE), STATUS_DAMAGED);
    build_image(bytes, true);
    bytes[EI_DATA] = ELFDATA2MSB;
    assert_int_equal(elf_image_open(&image, &memory.memory, BASE), STATUS_DAMAGED);
}

/* Every byte of the object turned to a few values, at every place: any answer will do, but it must come, after a
 * bounded number of reads. */
static void test_every_byte_may_be_wrong(void **state) {
    (void)state;
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    static uint8_t bytes[IMAGE_BYTES];
    for (size_t turn = 0; turn < 2 * sizeof values; turn++) {
        for (size_t at = 0; at < USED_BYTES; at++) {
            build_image(bytes, turn % 2 == 1);
            bytes[at] = values[turn / 2];
            struct image_memory memory = {{.read = read_image}, BASE, bytes, sizeof bytes, 0};
            struct elf_image image;
            remote_addr found = 0;
            if (elf_image_open(&image, &memory.memory, BASE) == STATUS_OK) {
                (void)!elf_image_find(&image, "alpha", &found);
                (void)!elf_image_find(&image, "delta", &found);
                (void)elf_image_needs(&image, "lib");
            }
            assert_true(memory.reads < 1000000);
        }
    }
}

/* A chain that leads back to itself. */
static void test_endless_chain(void **state) {
    (void)state;
    static uint8_t bytes[IMAGE_BYTES];
    build_image(bytes, false);
    uint32_t self = 2;
    put(bytes, 0x380 + 4 * (3 + 2), &self, sizeof self);
    struct image_memory memory = {{.read = read_image}, BASE, bytes, sizeof bytes, 0};
    struct elf_image image;
    remote_addr found = 0;
    assert_int_equal(elf_image_open(&image, &memory.memory, BASE), STATUS_OK);
    assert_int_equal(elf_image_find(&image, "delta", &found), STATUS_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_bias_is_the_dynamic_linkers),
        cmocka_unit_test(test_finds_what_dlsym_finds),
        cmocka_unit_test(test_pointers_that_were_not_relocated),
        cmocka_unit_test(test_both_hash_tables),
        cmocka_unit_test(test_what_is_no_object),
        cmocka_unit_test(test_every_byte_may_be_wrong),
        cmocka_unit_test(test_endless_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
