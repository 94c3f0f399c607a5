#include "child.h"
#include "process/process.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A folder of its own for each test. */
struct folder {
    char path[64];
    char file[80];
};

static int set_up(void **state) {
    struct folder *folder = calloc(1, sizeof *folder);
    if (folder == NULL)
        return 1;
    (void)snprintf(folder->path, sizeof folder->path, "/tmp/strobe-open-XXXXXX");
    if (mkdtemp(folder->path) == NULL)
        return 1;
    (void)snprintf(folder->file, sizeof folder->file, "%s/file", folder->path);
    *state = folder;
    return 0;
}

static int tear_down(void **state) {
    struct folder *folder = *state;
    (void)unlink(folder->file);
    (void)rmdir(folder->path);
    free(folder);
    return 0;
}

static void write_file(const char *path, char fill) {
    char page[8192];
    memset(page, fill, sizeof page);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, page, sizeof page), sizeof page);
    (void)close(fd);
}

static void *map_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    void *address = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(address != MAP_FAILED);
    (void)close(fd);
    return address;
}

/* The first byte of what stands behind the mapping at `address`, or the negated status. */
static int first_mapped_byte(struct process *process, const void *address) {
    struct error error = {0};
    struct mappings mappings;
    assert_int_equal(process_read_mappings(process, &mappings, &error), STATUS_OK);
    const struct mapping *mapping = mappings_find(&mappings, (remote_addr)(uintptr_t)address);
    assert_non_null(mapping);
    int fd = -1;
    enum status status = process_open_mapped_file(process, mapping, &fd);
    mappings_release(&mappings);
    if (status != STATUS_OK) {
        assert_int_equal(fd, -1);
        return -(int)status;
    }
    char byte = 0;
    assert_int_equal(read(fd, &byte, 1), 1);
    (void)close(fd);
    return byte;
}

static int first_byte_by_path(struct process *process, const char *path) {
    int fd = -1;
    enum status status = process_open_path(process, path, &fd);
    if (status != STATUS_OK) {
        assert_int_equal(fd, -1);
        return -(int)status;
    }
    char byte = 0;
    assert_int_equal(read(fd, &byte, 1), 1);
    (void)close(fd);
    return byte;
}

static void test_mapped_file_deleted_or_replaced(void **state) {
    if (geteuid() != 0)
        skip();
    struct folder *folder = *state;
    write_file(folder->file, 'a');
    void *address = map_file(folder->file);
    pid_t pid = child_start(child_idle, NULL);
    struct process *process = child_open(pid);
    assert_int_equal(first_mapped_byte(process, address), 'a');
    assert_int_equal(unlink(folder->file), 0);
    assert_int_equal(first_mapped_byte(process, address), 'a');
    write_file(folder->file, 'b');
    assert_int_equal(first_mapped_byte(process, address), 'a');
    process_free(process);
    child_end(pid);
    (void)munmap(address, 8192);
}

struct looker {
    struct folder *folder;
    void *address;
};

/* Without rights to map_files only the path is left, and it must be the right file or one with the same content. */
static void look_without_privilege(void *argument) {
    struct looker *looker = argument;
    /* The change of user makes it undumpable, and its children with it. */
    if (setgid(65534) != 0 || setuid(65534) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0)
        _exit(90);
    looker->address = map_file(looker->folder->file);
    pid_t pid = child_start(child_idle, NULL);
    struct process *process = child_open(pid);
    int original = first_mapped_byte(process, looker->address);
    if (unlink(looker->folder->file) != 0)
        _exit(91);
    write_file(looker->folder->file, 'a');
    int same = first_mapped_byte(process, looker->address);
    write_file(looker->folder->file, 'b');
    int other = first_mapped_byte(process, looker->address);
    (void)unlink(looker->folder->file);
    int none = first_mapped_byte(process, looker->address);
    process_free(process);
    child_end(pid);
    if (original != 'a' || same != 'a' || other != -STATUS_NOT_FOUND || none != -STATUS_NOT_FOUND)
        _exit(92);
    child_ready();
}

static void test_replaced_file_without_privilege(void **state) {
    if (geteuid() != 0)
        skip();
    struct looker looker = {.folder = *state};
    assert_int_equal(chmod(looker.folder->path, 0777), 0);
    write_file(looker.folder->file, 'a');
    pid_t pid = child_start(look_without_privilege, &looker);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_deleted_executable(void **state) {
    struct folder *folder = *state;
    child_copy_file("/bin/sh", folder->file);
    const char *const arguments[] = {folder->file, "-c", "echo; kill -STOP $$", NULL};
    pid_t pid = child_run_until_output(arguments);
    struct process *process = child_open(pid);
    char path[PATH_MAX];
    struct error error = {0};
    assert_int_equal(unlink(folder->file), 0);
    assert_int_equal(process_read_executable(process, path, sizeof path), STATUS_OK);
    assert_string_equal(path, folder->file);
    assert_int_equal(process_read_executable(process, path, strlen(folder->file)), STATUS_LIMIT);

    struct mappings mappings;
    assert_int_equal(process_read_mappings(process, &mappings, &error), STATUS_OK);
    size_t found = 0;
    for (size_t i = 0; i < mappings.count; i++)
        if (strcmp(mappings.items[i].path, folder->file) == 0) {
            int fd = -1;
            char magic[4];
            assert_true(mappings.items[i].deleted);
            assert_int_equal(process_open_mapped_file(process, &mappings.items[i], &fd), STATUS_OK);
            assert_int_equal(read(fd, magic, 4), 4);
            assert_memory_equal(magic, "\177ELF", 4);
            (void)close(fd);
            found++;
        }
    assert_true(found > 1);
    mappings_release(&mappings);
    process_free(process);
    child_end(pid);
}

static void test_anonymous_memory_has_no_file(void **state) {
    (void)state;
    void *address = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t pid = child_start(child_idle, NULL);
    struct process *process = child_open(pid);
    assert_int_equal(first_mapped_byte(process, address), -STATUS_NOT_FOUND);
    process_free(process);
    child_end(pid);
    (void)munmap(address, 8192);
}

static void enter_folder(void *folder) {
    if (chdir(((struct folder *)folder)->path) != 0)
        _exit(98);
    child_idle(NULL);
}

static void test_paths_as_the_target_sees_them(void **state) {
    struct folder *folder = *state;
    write_file(folder->file, 'r');
    pid_t pid = child_start(enter_folder, folder);
    struct process *process = child_open(pid);
    assert_int_equal(first_byte_by_path(process, "file"), 'r');
    assert_int_equal(first_byte_by_path(process, folder->file), 'r');
    assert_int_equal(first_byte_by_path(process, "none"), -STATUS_NOT_FOUND);
    assert_int_equal(first_byte_by_path(process, ""), -STATUS_NOT_FOUND);
    assert_int_equal(first_byte_by_path(process, folder->path), -STATUS_NOT_FOUND);
    assert_int_equal(first_byte_by_path(process, "/dev/null"), -STATUS_NOT_FOUND);
    /* A pipe would block whoever opens it. */
    assert_int_equal(unlink(folder->file), 0);
    assert_int_equal(mkfifo(folder->file, 0600), 0);
    assert_int_equal(first_byte_by_path(process, folder->file), -STATUS_NOT_FOUND);
    process_free(process);
    child_end(pid);
}

static void assert_resolves(struct process *process, const char *folder, const char *path, const char *expected) {
    char absolute[PATH_MAX];
    enum status status = process_resolve_path(process, folder, path, absolute, sizeof absolute);
    assert_int_equal(status, expected != NULL ? STATUS_OK : STATUS_NOT_FOUND);
    if (expected != NULL)
        assert_string_equal(absolute, expected);
}

static void test_relative_paths(void **state) {
    struct folder *folder = *state;
    char brief[8];
    write_file(folder->file, 'r');
    pid_t pid = child_start(enter_folder, folder);
    struct process *process = child_open(pid);
    assert_resolves(process, NULL, "file", folder->file);
    assert_resolves(process, NULL, ".//./file", folder->file);
    assert_resolves(process, NULL, "none", NULL);
    assert_resolves(process, NULL, folder->file, NULL);
    assert_resolves(process, NULL, ".", NULL);
    assert_int_equal(process_resolve_path(process, NULL, "file", brief, sizeof brief), STATUS_NOT_FOUND);
    /* Where it began comes first. */
    assert_resolves(process, "/etc", "passwd", "/etc/passwd");
    assert_resolves(process, "/", "etc/passwd", "/etc/passwd");
    assert_resolves(process, "/etc", "file", folder->file);
    assert_resolves(process, "/etc", "none", NULL);
    child_end(pid);
    struct process *seen[] = {process, NULL};
    for (int i = 0; i < 2; i++) {
        assert_resolves(seen[i], NULL, "file", NULL);
        assert_resolves(seen[i], folder->path, "file", folder->file);
        assert_resolves(seen[i], folder->path, "none", NULL);
        assert_resolves(seen[i], "/", ".", NULL);
    }
    process_free(process);
}

struct jail {
    struct folder *folder;
    void *address;
};

static void enter_jail(void *argument) {
    struct jail *jail = argument;
    if (chroot(jail->folder->path) != 0 || chdir("/") != 0)
        _exit(98);
    child_idle(NULL);
}

static void test_links_are_followed_in_the_targets_root(void **state) {
    if (geteuid() != 0)
        skip();
    struct jail jail = {.folder = *state};
    char link[96];
    (void)snprintf(link, sizeof link, "%s/link", jail.folder->path);
    write_file(jail.folder->file, 'j');
    assert_int_equal(symlink("/file", link), 0);
    jail.address = map_file(jail.folder->file);
    pid_t pid = child_start(enter_jail, &jail);
    struct process *process = child_open(pid);
    assert_int_equal(first_byte_by_path(process, "/file"), 'j');
    assert_int_equal(first_byte_by_path(process, "/link"), 'j');
    assert_int_equal(first_byte_by_path(process, "/../file"), 'j');
    assert_int_equal(first_byte_by_path(process, "/etc/passwd"), -STATUS_NOT_FOUND);
    assert_int_equal(first_mapped_byte(process, jail.address), 'j');
    process_free(process);
    child_end(pid);
    (void)unlink(link);
    (void)munmap(jail.address, 8192);
}

/* Hides the file of the folder behind a file system of the child's own. */
static void enter_mount_namespace(void *argument) {
    struct jail *jail = argument;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", jail->folder->path, "tmpfs", 0, NULL) != 0)
        _exit(98);
    write_file(jail->folder->file, 'm');
    jail->address = map_file(jail->folder->file);
    child_idle(NULL);
}

static void test_another_mount_namespace(void **state) {
    if (geteuid() != 0)
        skip();
    struct jail *jail = mmap(NULL, sizeof *jail, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(jail != MAP_FAILED);
    jail->folder = *state;
    write_file(jail->folder->file, 'o');
    pid_t pid = child_start(enter_mount_namespace, jail);
    struct process *process = child_open(pid);
    assert_int_equal(first_byte_by_path(process, jail->folder->file), 'm');
    assert_int_equal(first_mapped_byte(process, jail->address), 'm');
    process_free(process);
    child_end(pid);
    (void)munmap(jail, sizeof *jail);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mapped_file_deleted_or_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replaced_file_without_privilege, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deleted_executable, set_up, tear_down),
        cmocka_unit_test(test_anonymous_memory_has_no_file),
        cmocka_unit_test_setup_teardown(test_paths_as_the_target_sees_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_relative_paths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_links_are_followed_in_the_targets_root, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_mount_namespace, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
