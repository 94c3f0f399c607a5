#include "child.h"
#include "sampler/locate.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_minor_from_names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int minor;
    } names[] = {
        {"/usr/lib/libpython3.9.so.1.0", 9},
        {"/opt/libpython3.13t.so.1.0", 13},
        {"/opt/libpython3.11d.so", 11},
        {"python3.8", 8},
        {"/usr/bin/python3.14", 14},
        {"/x/_json.cpython-312-x86_64-linux-gnu.so", 12},
        {"/x/_json.cpython-38-x86_64-linux-gnu.so", 8},
        {"/usr/lib/python3.9/os.py", 0},
        {"/usr/bin/python3", 0},
        {"/usr/bin/python3.", 0},
        {"/usr/bin/python2.7", 0},
        {"/usr/lib/libpython3.so", 0},
        {"/usr/bin/python3.99999999999999999999", 0},
        {"/usr/bin/python3.-5", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(locate_minor_from_name(names[i].name), names[i].minor);
}

/* Loads one of the objects made from fake_runtime.c; returns where its runtime is. */
static remote_addr load(const char *path, void **handle) {
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*handle == NULL)
        fail_msg("%s", dlerror());
    uint64_t *(*where)(void) = NULL;
    *(void **)&where = dlsym(*handle, "fake_runtime_address");
    assert_non_null(where);
    return (remote_addr)(uintptr_t)where();
}

/* Looks into a fork of this program, which has the same objects. */
static enum status locate_in_fork(struct located *located, struct error *error, bool everywhere) {
    pid_t pid = child_start(child_idle, NULL);
    struct process *process = NULL;
    assert_int_equal(process_open(pid, &process, error), STATUS_OK);
    enum status status =
        everywhere ? locate_runtime_everywhere(process, located, error) : locate_runtime(process, located, error);
    process_free(process);
    child_end(pid);
    return status;
}

static void expect_only(remote_addr runtime, remote_addr py_version, int minor) {
    struct located located;
    struct error error = {0};
    assert_int_equal(locate_in_fork(&located, &error, false), STATUS_OK);
    assert_int_equal(located.count, 1);
    assert_int_equal(located.candidates[0].runtime, runtime);
    assert_int_equal(located.candidates[0].py_version, py_version);
    assert_int_equal(located.candidates[0].minor_hint, minor);
}

static void test_no_runtime_at_all(void **state) {
    (void)state;
    struct located located;
    struct error error = {0};
    assert_int_equal(locate_in_fork(&located, &error, false), STATUS_NOT_PYTHON);
    assert_int_equal(located.count, 0);
    assert_non_null(strstr(error.text, "is not Python (executable /"));
    assert_non_null(strstr(error.text, "test_locate)"));
}

static void test_exported_symbols(void **state) {
    (void)state;
    void *handle = NULL;
    remote_addr runtime = load(FAKE_LIBPYTHON, &handle);
    expect_only(runtime, (remote_addr)(uintptr_t)dlsym(handle, "Py_Version"), 97);
    (void)dlclose(handle);
}

static void test_section_of_an_object_with_another_name(void **state) {
    (void)state;
    void *handle = NULL;
    expect_only(load(FAKE_SECTION_OBJECT, &handle), 0, 0);
    (void)dlclose(handle);
}

static void test_cookie_without_symbols(void **state) {
    (void)state;
    void *handle = NULL;
    expect_only(load(FAKE_COOKIE_OBJECT, &handle), 0, 0);
    (void)dlclose(handle);
}

static void copy_file(const char *from, char *to) {
    int fd = mkstemps(to, (int)strlen(".so"));
    assert_true(fd >= 0);
    (void)close(fd);
    child_copy_file(from, to);
}

static void test_all_copies_are_candidates(void **state) {
    (void)state;
    void *first_handle = NULL, *second_handle = NULL;
    char copy[] = "/tmp/libpython3.96-XXXXXX.so";
    copy_file(FAKE_LIBPYTHON, copy);
    remote_addr first = load(FAKE_LIBPYTHON, &first_handle);
    remote_addr second = load(copy, &second_handle);
    assert_int_not_equal(first, second);
    assert_int_equal(unlink(copy), 0);
    struct located located;
    struct error error = {0};
    assert_int_equal(locate_in_fork(&located, &error, false), STATUS_OK);
    assert_int_equal(located.count, 2);
    remote_addr found[] = {located.candidates[0].runtime, located.candidates[1].runtime};
    assert_true((found[0] == first && found[1] == second) || (found[0] == second && found[1] == first));
    (void)dlclose(first_handle);
    (void)dlclose(second_handle);
}

static void test_objects_with_other_names_only_when_asked(void **state) {
    (void)state;
    void *named = NULL, *other = NULL;
    remote_addr first = load(FAKE_LIBPYTHON, &named);
    remote_addr second = load(FAKE_COOKIE_OBJECT, &other);
    struct located located;
    struct error error = {0};
    assert_int_equal(locate_in_fork(&located, &error, false), STATUS_OK);
    assert_int_equal(located.count, 1);
    assert_int_equal(locate_in_fork(&located, &error, true), STATUS_OK);
    assert_int_equal(located.count, 2);
    assert_int_equal(located.candidates[0].runtime, first);
    assert_int_equal(located.candidates[1].runtime, second);
    (void)dlclose(named);
    (void)dlclose(other);
}

static void test_a_file_that_is_only_read_is_no_object(void **state) {
    (void)state;
    int fd = open(FAKE_LIBPYTHON, O_RDONLY | O_CLOEXEC);
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    void *address = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(address != MAP_FAILED);
    struct located located;
    struct error error = {0};
    assert_int_equal(locate_in_fork(&located, &error, true), STATUS_NOT_PYTHON);
    (void)munmap(address, (size_t)status.st_size);
    (void)close(fd);
}

/* More than LOCATED_MAX: the rest is left out, nothing is overrun. */
static void test_too_many_copies(void **state) {
    (void)state;
    void *handles[LOCATED_MAX + 4];
    for (size_t i = 0; i < LOCATED_MAX + 4; i++) {
        char copy[] = "/tmp/libpython3.95-XXXXXX.so";
        copy_file(FAKE_LIBPYTHON, copy);
        (void)load(copy, &handles[i]);
        assert_int_equal(unlink(copy), 0);
    }
    struct located located;
    struct error error = {0};
    assert_int_equal(locate_in_fork(&located, &error, false), STATUS_OK);
    assert_int_equal(located.count, LOCATED_MAX);
    for (size_t i = 0; i < LOCATED_MAX + 4; i++)
        (void)dlclose(handles[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minor_from_names),
        cmocka_unit_test(test_no_runtime_at_all),
        cmocka_unit_test(test_exported_symbols),
        cmocka_unit_test(test_section_of_an_object_with_another_name),
        cmocka_unit_test(test_cookie_without_symbols),
        cmocka_unit_test(test_all_copies_are_candidates),
        cmocka_unit_test(test_objects_with_other_names_only_when_asked),
        cmocka_unit_test(test_a_file_that_is_only_read_is_no_object),
        cmocka_unit_test(test_too_many_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
