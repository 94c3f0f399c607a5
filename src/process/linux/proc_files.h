/* Reading and parsing the files of /proc/PID. Internal to this folder. */
#ifndef STROBE_PROCESS_LINUX_PROC_FILES_H
#define STROBE_PROCESS_LINUX_PROC_FILES_H

#include "base/buffer.h"
#include "process/process.h"

/* What an errno from a file of /proc/PID means for the process: ENOENT and ESRCH are STATUS_NO_PROCESS, EPERM and
 * EACCES STATUS_PERMISSION, everything else STATUS_FAILED. */
enum status status_from_errno(int error_number);

/* Reads the beginning of a file that one read(2) fills (stat, syscall, comm) into text, always NUL-terminated. */
enum status proc_read_text(int dir_fd, const char *name, char *text, size_t capacity) MUST_USE;

/* Appends the whole file to buffer. Stops with STATUS_LIMIT at the buffer's limit. */
enum status proc_read_whole(int dir_fd, const char *name, struct buffer *buffer) MUST_USE;

/* From /proc/PID/stat (proc(5)). */
struct proc_stat {
    char state; /* R S D T t Z X I … */
    char comm[16];
    uint32_t flags;      /* PF_* */
    size_t thread_count; /* of the whole process; one that has ended counts until it is buried; 0: not in the text */
};

/* STATUS_DAMAGED when the text is no stat line. The command may hold blanks and parentheses. */
enum status proc_parse_stat(const char *text, struct proc_stat *stat) MUST_USE;

/* The decimal number that follows blanks, if any, at *text, which it moves on; 0 when there is none. strtoull, which
 * knows of signs, bases and locales, takes several times as long. */
uint64_t proc_take_number(const char **text);

/* Whether the state letter is that of a thread that has ended. */
bool proc_state_ended(char state);
/* Also true on the way there: the memory is let go of before the state says so. */
bool proc_stat_ended(const struct proc_stat *stat);

/* The value of a field of /proc/PID/status ("NSpid"), or NULL. Ends at the newline, not at a NUL. */
const char *proc_status_field(const char *text, const char *name);

/* The last of the ids in an NSpid value, the one in the innermost PID namespace, and how many there are. False when
 * there is none. */
bool proc_parse_last_pid(const char *value, pid_t *pid, size_t *count);

/* The first argument of the futex that a line of /proc/PID/syscall tells of (futex, futex_wait, futex_waitv), or 0.
 * *is_vector says that it is the address of a struct futex_waitv instead. */
remote_addr proc_parse_futex(const char *text, bool *is_vector);

/* Whether a line of /proc/PID/syscall tells, like the state letter, that the thread runs or wants to (*running), or
 * that it waits. False for one that waits outside a system call, or in one from which it does not come back. */
bool proc_parse_wait(const char *text, bool *running);

/* Cuts " (deleted)" off a path that the kernel gave. Returns whether it was there. */
bool proc_cut_deleted(char *path);

/* Parses the text of /proc/PID/maps. Takes it over: `text` (malloc'ed, size_bytes long and a NUL behind) becomes the
 * storage of the paths, also on failure. */
enum status mappings_parse(char *text, size_t size_bytes, struct mappings *mappings) MUST_USE;

#endif
