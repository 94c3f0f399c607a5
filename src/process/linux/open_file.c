/* Files as the target sees them. */
#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { COMPARED_BYTES = 4096 };

/* Opens what a descriptor of O_PATH names, if it is a regular file: a path that comes from a target can name a pipe
 * that would block, or a device that does something when opened. */
static enum status reopen_regular(int path_fd, int *fd) {
    struct stat status;
    if (fstat(path_fd, &status) != 0 || !S_ISREG(status.st_mode))
        return STATUS_NOT_FOUND;
    char name[32];
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", path_fd);
    *fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (*fd >= 0)
        return STATUS_OK;
    return errno == EACCES || errno == EPERM ? STATUS_PERMISSION : STATUS_NOT_FOUND;
}

static enum status take_regular(int path_fd, int error_number, int *fd) {
    if (path_fd < 0)
        return error_number == EACCES || error_number == EPERM ? STATUS_PERMISSION : STATUS_NOT_FOUND;
    enum status status = reopen_regular(path_fd, fd);
    (void)close(path_fd);
    return status;
}

/* openat, with symbolic links that start at / followed in the target's root and not in strobe's (Linux 5.6; before, in
 * strobe's). */
static int open_in_root(int root_fd, const char *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return (int)fd;
    path += strspn(path, "/");
    return openat(root_fd, path, O_PATH | O_CLOEXEC);
}

static bool is_regular(int dir_fd, const char *path) {
    struct stat info;
    return fstatat(dir_fd, path, &info, 0) == 0 && S_ISREG(info.st_mode);
}

/* A regular file behind one of the links in its /proc directory. */
static bool has_file(const struct process *process, const char *link, const char *path) {
    char linked[PATH_MAX];
    return (size_t)snprintf(linked, sizeof linked, "%s/%s", link, path) < sizeof linked &&
           is_regular(process->dir_fd, linked);
}

static bool join(const char *folder, const char *path, char *joined, size_t capacity) {
    const char *separator = folder[strlen(folder) - 1] == '/' ? "" : "/";
    return (size_t)snprintf(joined, capacity, "%s%s%s", folder, separator, path) < capacity;
}

static bool resolve_from(struct process *process, const char *folder, const char *path, char *absolute,
                         size_t capacity) {
    if (!join(folder, path, absolute, capacity))
        return false;
    if (process != NULL && has_file(process, "root", absolute + 1))
        return true;
    /* The root of one that is gone is not known: strobe's own stands for it. Asked afterwards: it may go meanwhile. */
    return (process == NULL || !process_alive(process)) && is_regular(AT_FDCWD, absolute);
}

enum status process_resolve_path(struct process *process, const char *folder, const char *path, char *absolute,
                                 size_t capacity) {
    char current[PATH_MAX];
    while (strncmp(path, "./", 2) == 0)
        path += 2 + strspn(path + 2, "/");
    if (path[0] == '/')
        return STATUS_NOT_FOUND;
    if (folder != NULL && resolve_from(process, folder, path, absolute, capacity))
        return STATUS_OK;
    if (process == NULL || !has_file(process, "cwd", path))
        return STATUS_NOT_FOUND;
    ssize_t length = readlinkat(process->dir_fd, "cwd", current, sizeof current - 1);
    if (length <= 0 || current[0] != '/')
        return STATUS_NOT_FOUND;
    current[length] = '\0';
    return join(current, path, absolute, capacity) ? STATUS_OK : STATUS_NOT_FOUND;
}

enum status process_open_path(struct process *process, const char *path, int *fd) {
    *fd = -1;
    int dir_fd = openat(process->dir_fd, path[0] == '/' ? "root" : "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return status_from_errno(errno);
    int path_fd = path[0] == '/' ? open_in_root(dir_fd, path) : openat(dir_fd, path, O_PATH | O_CLOEXEC);
    int error_number = errno;
    (void)close(dir_fd);
    return take_regular(path_fd, error_number, fd);
}

static bool same_file(const struct mapping *mapping, int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_ino == mapping->inode &&
           ((uint32_t)major(status.st_dev) << 20 | (uint32_t)minor(status.st_dev)) == mapping->device;
}

/* stat(2) and the memory map need not agree about a file that did not change: on overlayfs and btrfs they name
 * different devices, on overlayfs also different inodes. A file that holds what is mapped, headers and build id
 * included, is as good. Only for mappings that nothing writes to. */
static bool same_content(struct process *process, const struct mapping *mapping, int fd) {
    char in_file[COMPARED_BYTES], in_memory[COMPARED_BYTES];
    if (mapping->writable)
        return false;
    ssize_t size = pread(fd, in_file, sizeof in_file, (off_t)mapping->file_offset);
    if (size <= 0 || (uint64_t)size > mapping->end - mapping->start)
        return false;
    return memory_read(process_memory(process), mapping->start, in_memory, (size_t)size) == STATUS_OK &&
           memcmp(in_file, in_memory, (size_t)size) == 0;
}

static enum status keep_if_same(struct process *process, const struct mapping *mapping, enum status status, int *fd) {
    TRY(status);
    if (same_file(mapping, *fd) || same_content(process, mapping, *fd))
        return STATUS_OK;
    (void)close(*fd);
    *fd = -1;
    return STATUS_NOT_FOUND;
}

enum status process_open_mapped_file(struct process *process, const struct mapping *mapping, int *fd) {
    *fd = -1;
    if (mapping->path[0] != '/')
        return STATUS_NOT_FOUND;

    /* The very file, whatever became of its name. Wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. */
    char name[64];
    (void)snprintf(name, sizeof name, "map_files/%" PRIx64 "-%" PRIx64, mapping->start, mapping->end);
    int path_fd = openat(process->dir_fd, name, O_PATH | O_CLOEXEC);
    if (take_regular(path_fd, errno, fd) == STATUS_OK)
        return STATUS_OK;

    /* The executable can be had by its link without that capability, also when it was deleted. */
    path_fd = openat(process->dir_fd, "exe", O_PATH | O_CLOEXEC);
    enum status status = take_regular(path_fd, errno, fd);
    if (keep_if_same(process, mapping, status, fd) == STATUS_OK)
        return STATUS_OK;

    /* The map names what strobe's own root cannot reach (another mount namespace) from the top of its mount, which is
     * the target's root as a rule, and everything else (chroot) from strobe's root. */
    status = process_open_path(process, mapping->path, fd);
    if (keep_if_same(process, mapping, status, fd) == STATUS_OK)
        return STATUS_OK;
    path_fd = open(mapping->path, O_PATH | O_CLOEXEC);
    status = take_regular(path_fd, errno, fd);
    if (keep_if_same(process, mapping, status, fd) == STATUS_OK)
        return STATUS_OK;
    return STATUS_NOT_FOUND;
}

enum status process_read_executable(struct process *process, char *path, size_t capacity) {
    ssize_t length = readlinkat(process->dir_fd, "exe", path, capacity);
    if (length < 0)
        return status_from_errno(errno);
    if ((size_t)length >= capacity)
        return STATUS_LIMIT;
    path[length] = '\0';
    (void)proc_cut_deleted(path);
    return STATUS_OK;
}
