#include "process/linux/proc_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than some C libraries' headers; the same numbers on all architectures. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wait
#define SYS_futex_wait 455
#endif

/* The kernel gives a page of most files at a time. */
enum { READ_STEP = 1 << 13, PID_LEVELS_MAX = 64 };

enum status status_from_errno(int error_number) {
    switch (error_number) {
    case ENOENT:
    case ESRCH:
        return STATUS_NO_PROCESS;
    case EACCES:
    case EPERM:
        return STATUS_PERMISSION;
    case EMFILE:
    case ENFILE:
        return STATUS_NO_FILES;
    default:
        return STATUS_FAILED;
    }
}

enum status proc_read_text(int dir_fd, const char *name, char *text, size_t capacity) {
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return status_from_errno(errno);
    ssize_t size = read(fd, text, capacity - 1);
    int error_number = errno;
    (void)close(fd);
    if (size < 0)
        return status_from_errno(error_number);
    text[size] = '\0';
    return STATUS_OK;
}

static enum status append_from(int fd, struct buffer *buffer) {
    for (;;) {
        size_t size_before = buffer->size_bytes;
        void *where = NULL;
        TRY(buffer_extend(buffer, READ_STEP, &where));
        ssize_t size = read(fd, where, READ_STEP);
        int error_number = errno;
        buffer_truncate(buffer, size_before + (size > 0 ? (size_t)size : 0));
        if (size == 0)
            return STATUS_OK;
        if (size < 0 && error_number != EINTR)
            return status_from_errno(error_number);
    }
}

enum status proc_read_whole(int dir_fd, const char *name, struct buffer *buffer) {
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return status_from_errno(errno);
    enum status status = append_from(fd, buffer);
    (void)close(fd);
    return status;
}

/* The nth (from 0) blank-separated word of text, or NULL. */
static const char *word_at(const char *text, int n) {
    for (;;) {
        text += strspn(text, " ");
        if (*text == '\0')
            return NULL;
        if (n-- == 0)
            return text;
        text += strcspn(text, " ");
    }
}

enum status proc_parse_stat(const char *text, struct proc_stat *stat) {
    *stat = (struct proc_stat){0};
    const char *open = strchr(text, '(');
    const char *close = strrchr(text, ')');
    if (open == NULL || close == NULL || close < open)
        return STATUS_DAMAGED;
    size_t length = (size_t)(close - open - 1);
    if (length >= sizeof stat->comm)
        length = sizeof stat->comm - 1;
    memcpy(stat->comm, open + 1, length);
    stat->comm[length] = '\0';

    /* Behind the command: state ppid pgrp session tty_nr tpgid flags … and the 20th field of all: num_threads */
    const char *state = word_at(close + 1, 0);
    const char *flags = word_at(close + 1, 6);
    const char *thread_count = word_at(close + 1, 17);
    if (state == NULL || flags == NULL)
        return STATUS_DAMAGED;
    stat->state = *state;
    stat->flags = (uint32_t)strtoul(flags, NULL, 10);
    stat->thread_count = thread_count != NULL ? strtoul(thread_count, NULL, 10) : 0;
    return STATUS_OK;
}

uint64_t proc_take_number(const char **text) {
    const char *at = *text;
    uint64_t number = 0;
    while (*at == ' ')
        at++;
    for (; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    *text = at;
    return number;
}

bool proc_state_ended(char state) {
    return state == 'Z' || state == 'X' || state == 'x';
}

bool proc_stat_ended(const struct proc_stat *stat) {
    enum { PF_EXITING = 0x4 }; /* include/linux/sched.h */
    return proc_state_ended(stat->state) || (stat->flags & PF_EXITING) != 0;
}

const char *proc_status_field(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *line = text; line != NULL;) {
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            return line + length + 1;
        line = strchr(line, '\n');
        if (line != NULL)
            line++;
    }
    return NULL;
}

bool proc_parse_last_pid(const char *value, pid_t *pid, size_t *count) {
    *count = 0;
    while (value != NULL && *count < PID_LEVELS_MAX) {
        value += strspn(value, " \t");
        if (*value < '0' || *value > '9')
            break;
        char *end = NULL;
        unsigned long number = strtoul(value, &end, 10);
        if (number > INT32_MAX)
            return false;
        *pid = (pid_t)number;
        (*count)++;
        value = end;
    }
    return *count > 0;
}

remote_addr proc_parse_futex(const char *text, bool *is_vector) {
    *is_vector = false;
    char *end = NULL;
    long number = strtol(text, &end, 10);
    /* "running", or "-1 …" for a thread that waits outside a system call. */
    if (end == text || *end != ' ')
        return 0;
    if (number != SYS_futex && number != SYS_futex_wait && number != SYS_futex_waitv)
        return 0;
    *is_vector = number == SYS_futex_waitv;
    return strtoull(end + 1, NULL, 16);
}

bool proc_parse_wait(const char *text, bool *running) {
    static const char running_text[] = "running";
    *running = strncmp(text, running_text, sizeof running_text - 1) == 0;
    if (*running)
        return true;
    char *end = NULL;
    long number = strtol(text, &end, 10);
    return end != text && *end == ' ' && number >= 0 && number != SYS_exit && number != SYS_exit_group;
}

bool proc_cut_deleted(char *path) {
    static const char suffix[] = " (deleted)";
    size_t length = strlen(path);
    size_t suffix_length = sizeof suffix - 1;
    if (path[0] != '/' || length <= suffix_length || strcmp(path + length - suffix_length, suffix) != 0)
        return false;
    path[length - suffix_length] = '\0';
    return true;
}
