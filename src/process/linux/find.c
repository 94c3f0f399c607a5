#include "process/linux/proc_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_LIMIT_BYTES = 1 << 21 };

/* Whether a mapping is as is wanted. */
static enum status find_mapping(struct process *process, bool (*matches)(const struct mapping *, const void *),
                                const void *wanted, bool *found) {
    struct mappings mappings;
    struct error ignored = {0};
    *found = false;
    TRY(process_read_mappings(process, &mappings, &ignored));
    for (size_t i = 0; i < mappings.count && !*found; i++)
        *found = matches(&mappings.items[i], wanted);
    mappings_release(&mappings);
    return STATUS_OK;
}

static bool is_of_file(const struct mapping *mapping, const void *wanted) {
    const struct mapping *file = wanted;
    return mapping->inode == file->inode && mapping->device == file->device;
}

/* " (deleted)" may follow. */
static bool is_named(const struct mapping *mapping, const void *wanted) {
    const char *name = wanted, *slash = strrchr(mapping->path, '/');
    return slash != NULL && strncmp(slash + 1, name, strlen(name)) == 0;
}

bool process_maps_file(struct process *process, uint32_t device, uint64_t inode) {
    const struct mapping file = {.device = device, .inode = inode};
    bool found = false;
    return find_mapping(process, is_of_file, &file, &found) == STATUS_OK && found;
}

bool process_lacks_library(struct process *process, const char *name) {
    bool found = false;
    return find_mapping(process, is_named, name, &found) == STATUS_OK && !found;
}

/* Whether the process is called own_pid in a namespace of its own. */
static bool is_called(int proc_fd, const char *pid, pid_t own_pid) {
    char name[300];
    struct buffer text;
    pid_t seen = 0;
    size_t levels = 0;
    (void)snprintf(name, sizeof name, "%s/status", pid);
    buffer_init(&text, STATUS_LIMIT_BYTES);
    bool is_nested = proc_read_whole(proc_fd, name, &text) == STATUS_OK &&
                     proc_parse_last_pid(proc_status_field(buffer_text(&text), "NSpid"), &seen, &levels) && levels > 1;
    buffer_release(&text);
    return is_nested && seen == own_pid;
}

enum status process_find_by_mapping(pid_t own_pid, uint32_t device, uint64_t inode, struct process **result) {
    struct error ignored = {0};
    DIR *proc = opendir("/proc");
    *result = NULL;
    for (struct dirent *entry; proc != NULL && *result == NULL && (entry = readdir(proc)) != NULL;) {
        struct process *process = NULL;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || !is_called(dirfd(proc), entry->d_name, own_pid) ||
            process_open((pid_t)strtol(entry->d_name, NULL, 10), &process, &ignored) != STATUS_OK)
            continue;
        if (process_maps_file(process, device, inode))
            *result = process;
        else
            process_free(process);
    }
    if (proc != NULL)
        (void)closedir(proc);
    return *result != NULL ? STATUS_OK : STATUS_NO_PROCESS;
}
