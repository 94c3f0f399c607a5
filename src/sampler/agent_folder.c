#include "sampler/agent_folder.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_PREFIX "strobe-agent-"

/* File systems take their times from a clock that stands still for up to 10 ms. */
static const int64_t FRESH_NS = 50000000;

/* Whether the folder open at fd is one that strobe made: this user's, and nobody else's to enter. */
static bool is_ours(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

static DIR *open_list(int folder_fd) {
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL && fd >= 0)
        (void)close(fd);
    return list;
}

static void empty_folder(int fd) {
    DIR *list = open_list(fd);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        (void)unlinkat(fd, entry->d_name, 0);
    if (list != NULL)
        (void)closedir(list);
}

/* Its strobe is dead when nobody holds its lock. */
static void remove_if_dead(int base_fd, const char *name) {
    int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (is_ours(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        empty_folder(fd);
        (void)unlinkat(base_fd, name, AT_REMOVEDIR);
    }
    (void)close(fd);
}

static void remove_dead(const char *base) {
    DIR *list = opendir(base);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (strncmp(entry->d_name, FOLDER_PREFIX, strlen(FOLDER_PREFIX)) == 0)
            remove_if_dead(dirfd(list), entry->d_name);
    if (list != NULL)
        (void)closedir(list);
}

/* Another strobe may take a folder that is not locked yet for a dead one's and remove it: then there is none. */
static bool make_folder(struct agent_folder *folder, const char *base) {
    uint64_t random[2];
    struct stat info;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random ||
        asprintf(&folder->path, "%s/" FOLDER_PREFIX "%016llx%016llx", base, (unsigned long long)random[0],
                 (unsigned long long)random[1]) < 0) {
        folder->path = NULL;
        return false;
    }
    if (mkdir(folder->path, 0700) == 0) {
        folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (folder->fd >= 0 && flock(folder->fd, LOCK_EX | LOCK_NB) == 0 && is_ours(folder->fd) &&
            stat(folder->path, &info) == 0)
            return true;
        (void)rmdir(folder->path);
    }
    if (folder->fd >= 0)
        (void)close(folder->fd);
    free(folder->path);
    *folder = (struct agent_folder){.fd = -1, .was_fresh = true};
    return false;
}

/* Where it may be, the best first. NULL: not to be had. */
static const char *base_folder(size_t index) {
    const char *bases[] = {"/dev/shm", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    const char *base = bases[index];
    return base != NULL && base[0] == '/' ? base : NULL;
}

enum status agent_folder_open(struct agent_folder *folder, struct error *error) {
    enum { BASES = 4, ATTEMPTS = 3 };
    *folder = (struct agent_folder){.fd = -1, .was_fresh = true};
    for (size_t i = 0; i < BASES * ATTEMPTS && folder->path == NULL; i++) {
        const char *base = base_folder(i / ATTEMPTS);
        if (base == NULL || access(base, W_OK | X_OK) != 0)
            continue;
        if (i % ATTEMPTS == 0)
            remove_dead(base);
        (void)make_folder(folder, base);
    }
    if (folder->path == NULL)
        return error_set(error, STATUS_FAILED, "cannot make a folder in /dev/shm, TMPDIR or /tmp: %s", strerror(errno));
    return STATUS_OK;
}

void agent_folder_close(struct agent_folder *folder) {
    if (folder->path != NULL) {
        empty_folder(folder->fd);
        (void)rmdir(folder->path);
    }
    if (folder->fd >= 0)
        (void)close(folder->fd);
    free(folder->path);
    *folder = (struct agent_folder){.fd = -1, .was_fresh = true};
}

bool agent_folder_has_changed(const struct agent_folder *folder) {
    struct stat info;
    return folder->was_fresh || fstat(folder->fd, &info) != 0 || info.st_mtim.tv_sec != folder->changed.tv_sec ||
           info.st_mtim.tv_nsec != folder->changed.tv_nsec;
}

/* Before the search: what changes meanwhile is for the next one. */
static void note_change(struct agent_folder *folder) {
    struct stat info;
    struct timespec now;
    folder->was_fresh = true;
    if (fstat(folder->fd, &info) != 0 || clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0)
        return;
    int64_t age_ns =
        ((int64_t)now.tv_sec - info.st_mtim.tv_sec) * (int64_t)NS_PER_S + now.tv_nsec - info.st_mtim.tv_nsec;
    folder->changed = info.st_mtim;
    folder->was_fresh = age_ns < FRESH_NS;
}

void agent_folder_search(struct agent_folder *folder, void (*found)(void *context, const char *name), void *context) {
    note_change(folder);
    DIR *list = open_list(folder->fd);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.')
            found(context, entry->d_name);
    if (list != NULL)
        (void)closedir(list);
}

static bool parse_number(const char **at, char terminator, unsigned long most, unsigned long *number) {
    char *end = NULL;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *number = strtoul(*at, &end, 10);
    *at = end + 1;
    return errno == 0 && *end == terminator && *number <= most;
}

bool agent_folder_parse_name(const char *name, pid_t *pid, uint32_t *incarnation) {
    unsigned long first = 0, second = 0;
    if (strlen(name) >= AGENT_NAME_BYTES || !parse_number(&name, '-', INT_MAX, &first) ||
        !parse_number(&name, '.', UINT32_MAX, &second) || strcmp(name, "region") != 0)
        return false;
    *pid = (pid_t)first;
    *incarnation = (uint32_t)second;
    return first > 0;
}
