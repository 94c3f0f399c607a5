#include "child.h"
#include "process/linux/proc_files.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

static enum status parse(const char *text, struct mappings *mappings) {
    return mappings_parse(strdup(text), strlen(text), mappings);
}

static void test_reads_lines(void **state) {
    (void)state;
    struct mappings mappings;
    assert_int_equal(parse("00400000-00420000 r-xp 0001f000 fe:01 4711                               /usr/bin/x y\n"
                           "7f0000000000-7f0000001000 rw-s 00000000 00:05 12 /dev/zero (deleted)\n"
                           "7f0000001000-7f0000002000 ---p 00000000 00:00 0 \n"
                           "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n"
                           "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n",
                           &mappings),
                     STATUS_OK);
    assert_int_equal(mappings.count, 5);
    const struct mapping *first = &mappings.items[0];
    assert_int_equal(first->start, 0x400000);
    assert_int_equal(first->end, 0x420000);
    assert_int_equal(first->file_offset, 0x1f000);
    assert_int_equal(first->inode, 4711);
    assert_int_equal(first->device, 0xfeu << 20 | 1);
    assert_true(first->readable && !first->writable && first->executable && !first->deleted);
    assert_string_equal(first->path, "/usr/bin/x y");
    assert_true(mappings.items[1].deleted && mappings.items[1].writable);
    assert_string_equal(mappings.items[1].path, "/dev/zero");
    assert_string_equal(mappings.items[2].path, "");
    assert_false(mappings.items[2].readable);
    assert_string_equal(mappings.items[3].path, "[stack]");

    assert_ptr_equal(mappings_find(&mappings, 0x41ffff), first);
    assert_null(mappings_find(&mappings, 0x420000));
    assert_null(mappings_find(&mappings, 0x3fffff));
    assert_ptr_equal(mappings_find(&mappings, 0x7f0000001000), &mappings.items[2]);
    assert_ptr_equal(mappings_find(&mappings, 0xffffffffff600fff), &mappings.items[4]);
    assert_null(mappings_find(&mappings, UINT64_MAX));
    mappings_release(&mappings);
}

static void test_unescapes_newlines(void **state) {
    (void)state;
    struct mappings mappings;
    assert_int_equal(parse("1000-2000 r--p 0 0:0 7 /a\\012b\\012 (deleted)\n", &mappings), STATUS_OK);
    assert_string_equal(mappings.items[0].path, "/a\nb\n");
    mappings_release(&mappings);
}

static void test_refuses_broken_lines(void **state) {
    (void)state;
    const char *const broken[] = {
        "\n",
        "x\n",
        "1000\n",
        "1000-2000\n",
        "1000-2000 ",
        "1000-2000 r--p 0 0:0 7 /x\n\n",
        "2000-1000 r--p 0 0:0 7 /x\n",
        "1000-2000 r--p 0 00 7 /x\n",
        "1000-2000 r-\n",
        "1000-2000 r--p\n",
        "1000-2000 r--p 0 0:0 \n",
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        struct mappings mappings;
        enum status status = parse(broken[i], &mappings);
        /* Text without a newline at its end is a line cut off, and dropped. */
        assert_int_equal(status, strchr(broken[i], '\n') != NULL ? STATUS_DAMAGED : STATUS_OK);
        mappings_release(&mappings);
    }
}

static void test_drops_mappings_that_come_twice(void **state) {
    (void)state;
    struct mappings mappings;
    assert_int_equal(parse("1000-3000 r--p 0 0:0 0 \n2000-4000 r--p 0 0:0 0 \n4000-5000 r--p 0 0:0 0 \n", &mappings),
                     STATUS_OK);
    assert_int_equal(mappings.count, 2);
    assert_int_equal(mappings.items[1].start, 0x4000);
    mappings_release(&mappings);
}

static void open_and_read(pid_t pid, struct mappings *mappings) {
    struct error error = {0};
    struct process *process = NULL;
    assert_int_equal(process_open(pid, &process, &error), STATUS_OK);
    assert_int_equal(process_read_mappings(process, mappings, &error), STATUS_OK);
    process_free(process);
}

static int check_object(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct mappings *mappings = argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0)
            continue;
        const struct mapping *mapping = mappings_find(mappings, info->dlpi_addr + segment->p_vaddr);
        assert_non_null(mapping);
        assert_true(mapping->executable);
        if (info->dlpi_name[0] == '/') {
            char real[PATH_MAX];
            struct stat status;
            assert_non_null(realpath(info->dlpi_name, real));
            assert_string_equal(mapping->path, real);
            assert_int_equal(stat(real, &status), 0);
            assert_int_equal(mapping->inode, status.st_ino);
        }
    }
    return 0;
}

/* A forked child has the same objects at the same places as this program, which asks its own dynamic linker. */
static void test_agrees_with_the_dynamic_linker(void **state) {
    (void)state;
    pid_t pid = child_start(child_idle, NULL);
    struct mappings mappings;
    open_and_read(pid, &mappings);
    assert_true(mappings.count > 10);
    for (size_t i = 1; i < mappings.count; i++)
        assert_true(mappings.items[i - 1].end <= mappings.items[i].start);
    (void)dl_iterate_phdr(check_object, &mappings);
    mappings_release(&mappings);
    child_end(pid);
}

struct nasty {
    char path[256];
    void *address;
};

static void map_file(struct nasty *nasty) {
    (void)snprintf(nasty->path, sizeof nasty->path, "/tmp/strobe maps\n%d  x", (int)getpid());
    int fd = open(nasty->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    nasty->address = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(nasty->address != MAP_FAILED);
    (void)close(fd);
}

static void test_real_paths_with_blanks_and_newlines(void **state) {
    (void)state;
    struct nasty nasty;
    map_file(&nasty);
    pid_t pid = child_start(child_idle, NULL);
    for (int deleted = 0; deleted < 2; deleted++) {
        struct mappings mappings;
        open_and_read(pid, &mappings);
        const struct mapping *mapping = mappings_find(&mappings, (uint64_t)(uintptr_t)nasty.address);
        assert_non_null(mapping);
        assert_string_equal(mapping->path, nasty.path);
        assert_int_equal(mapping->deleted, deleted);
        mappings_release(&mappings);
        if (!deleted)
            assert_int_equal(unlink(nasty.path), 0);
    }
    child_end(pid);
    (void)munmap(nasty.address, 4096);
}

enum { MANY = 30000 };

/* Neighbours with different protections are not merged. */
static void map_many(void *argument) {
    char *start = *(char **)argument;
    for (size_t i = 0; i < MANY; i += 2)
        if (mprotect(start + i * 4096, 4096, PROT_READ) != 0)
            _exit(98);
    child_idle(NULL);
}

static void test_tens_of_thousands_of_mappings(void **state) {
    (void)state;
    char *start = mmap(NULL, (size_t)MANY * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(start != MAP_FAILED);
    pid_t pid = child_start(map_many, &start);
    struct mappings mappings;
    open_and_read(pid, &mappings);
    assert_true(mappings.count >= MANY - 1);
    for (size_t i = 2; i < MANY; i++) {
        remote_addr address = (uint64_t)(uintptr_t)start + i * 4096;
        const struct mapping *mapping = mappings_find(&mappings, address + 4095);
        assert_non_null(mapping);
        assert_int_equal(mapping->readable, i % 2 == 0);
    }
    mappings_release(&mappings);
    child_end(pid);
    (void)munmap(start, (size_t)MANY * 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_lines),
        cmocka_unit_test(test_unescapes_newlines),
        cmocka_unit_test(test_refuses_broken_lines),
        cmocka_unit_test(test_drops_mappings_that_come_twice),
        cmocka_unit_test(test_agrees_with_the_dynamic_linker),
        cmocka_unit_test(test_real_paths_with_blanks_and_newlines),
        cmocka_unit_test(test_tens_of_thousands_of_mappings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
