/* A process seen from outside. The only folder that makes system calls about other processes; what differs between
 * systems stands in one sub-folder each (linux/). */
#ifndef STROBE_PROCESS_PROCESS_H
#define STROBE_PROCESS_PROCESS_H

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An open process. Keeps the descriptors it needs open, so that a reused process id is noticed. */
struct process;

/* A thread's id opens its process. STATUS_NO_PROCESS (also for a zombie), STATUS_PERMISSION (naming the setting to
 * change: ptrace_scope, user, capability), STATUS_NOT_PYTHON for a kernel thread. */
enum status process_open(pid_t pid, struct process **process, struct error *error) MUST_USE;
void process_free(struct process *process);

pid_t process_pid(const struct process *process);
/* The process id as the process itself sees it (innermost PID namespace). */
pid_t process_own_pid(const struct process *process);
/* Whether it still lives: the same process as at process_open, and one of its threads at least has not ended. That the
 * first one has does not mean that all have; it is a zombie until then. */
bool process_alive(const struct process *process);
/* Whether it has a thread of that number, as the process itself sees it. True when that cannot be told. */
bool process_has_thread(const struct process *process, pid_t own_tid);

/* The process that traces it already (a debugger), so that it cannot be paused; 0: none. */
pid_t process_tracer(const struct process *process);

/* How often the process was found to have become another program (exec) by reading its memory; what was known of its
 * memory before is void. Not noticed where /proc/PID/mem is not to be had. */
unsigned process_exec_count(const struct process *process);

/* Reads its memory with process_vm_readv, or pread on /proc/PID/mem where that is not to be had. Owned by the process.
 */
struct memory *process_memory(struct process *process);

/* The command line, as an array of strings with a NULL behind it. Owned by the process. */
char **process_command(struct process *process);

/* Makes process_command read it again: after an exec. What it returned before is no longer valid. */
void process_forget_command(struct process *process);

/* The value of an environment variable as it was when the program began. STATUS_NOT_FOUND when it has none. The caller
 * frees it. */
enum status process_read_variable(struct process *process, const char *name, char **value) MUST_USE;

/* Whether it shares its memory with the process `other`: a child made by vfork is its parent, in all that can be read,
 * until it execs. False where the kernel does not say. */
bool process_shares_memory(const struct process *process, pid_t other);

/* How much of its memory is in RAM and no file's. */
enum status process_read_resident(const struct process *process, uint64_t *resident_bytes) MUST_USE;

/* The path of the executable, without the " (deleted)" of one that is gone. */
enum status process_read_executable(struct process *process, char *path, size_t capacity) MUST_USE;

/* One line of the memory map. */
struct mapping {
    remote_addr start;
    remote_addr end;
    uint64_t file_offset;
    uint64_t inode;
    uint32_t device; /* major << 20 | minor */
    bool readable, writable, executable;
    bool deleted;     /* the file's name is gone; `path` is what it was, without the " (deleted)" */
    const char *path; /* "" for anonymous memory, "[heap]" and the like for what only the kernel names */
};

struct mappings {
    struct mapping *items;
    size_t count;
    char *paths; /* storage of the paths */
};

/* Reads the memory map, sorted by address. The caller releases it. */
enum status process_read_mappings(struct process *process, struct mappings *mappings, struct error *error) MUST_USE;
void mappings_release(struct mappings *mappings);
/* The mapping that holds `address`, or NULL. */
const struct mapping *mappings_find(const struct mappings *mappings, remote_addr address);

/* Whether a file, told as struct mapping tells it, is mapped. False when that cannot be known. */
bool process_maps_file(struct process *process, uint32_t device, uint64_t inode);
/* Whether no file of this name, whatever its folder, is mapped. False when that cannot be known. */
bool process_lacks_library(struct process *process, const char *name);
/* Looks through all processes in PID namespaces below strobe's for the one that calls itself own_pid and has that file
 * mapped. STATUS_NO_PROCESS when there is none. */
enum status process_find_by_mapping(pid_t own_pid, uint32_t device, uint64_t inode, struct process **process) MUST_USE;

/* Opens the file behind a mapping, whatever became of its name: through map_files, else by the executable's link or by
 * its path when device and inode still agree or the file still holds what is mapped. *fd is the caller's.
 * STATUS_NOT_FOUND when the file cannot be had any more. */
enum status process_open_mapped_file(struct process *process, const struct mapping *mapping, int *fd) MUST_USE;

/* Opens a path as the target sees it (its root and, for a relative path, its working directory), read-only. Regular
 * files only: anything else is STATUS_NOT_FOUND, and is not touched. */
enum status process_open_path(struct process *process, const char *path, int *fd) MUST_USE;

/* The absolute name, as the target sees it, of a file that it calls by a relative path: relative to the absolute
 * `folder` (NULL: not known), or else to where it works now. process: NULL when it is gone. STATUS_NOT_FOUND when no
 * file is there (any more). */
enum status process_resolve_path(struct process *process, const char *folder, const char *path, char *absolute,
                                 size_t capacity) MUST_USE;

enum thread_run_state { THREAD_IDLE, THREAD_RUNNING };

/* One thread as the system knows it. */
struct system_thread {
    pid_t tid;     /* as strobe sees it */
    pid_t own_tid; /* as the process itself sees it (PID namespaces) */
    enum thread_run_state state;
    char comm[16]; /* the kernel's name for it */
    /* The address that the thread waits on when it sits in futex(2), else 0. */
    remote_addr futex_address;
};

struct system_threads {
    struct system_thread *items;
    size_t count;
};

/* Lists the threads. A thread that ends meanwhile is left out. Futex addresses are read when with_futexes. */
enum status process_read_threads(struct process *process, bool with_futexes, struct system_threads *threads,
                                 struct error *error) MUST_USE;
/* The same by their ids alone, which is far cheaper: also threads that have ended and are still there. own_tid is 0
 * where the process is in a PID namespace below strobe's. */
enum status process_list_threads(struct process *process, struct system_threads *threads, struct error *error) MUST_USE;
/* One thread. STATUS_NO_PROCESS when there is none (any more). */
enum status process_read_thread(struct process *process, pid_t tid, struct system_thread *thread) MUST_USE;
/* The same by what the process itself calls it. STATUS_NOT_FOUND where only a list can tell which one that is. */
enum status process_read_own_thread(struct process *process, uint64_t own_tid, struct system_thread *thread) MUST_USE;
void system_threads_release(struct system_threads *threads);

/* Stops all threads (seized, never with a signal the target could see) until process_resume. If strobe dies meanwhile,
 * the kernel lets them go. Threads born during the stop are stopped too. A thread blocked in the kernel (state D) may
 * be left as it is. While paused, process_read_threads gives the states from before, unless the process is held: then
 * ask before. STATUS_PERMISSION also when another process traces it. These and the functions below are all to be called
 * from the same thread: ptrace belongs to a thread. */
enum status process_pause(struct process *process, struct error *error) MUST_USE;
void process_resume(struct process *process);

/* For many pauses: seizes the threads once, until process_let_go or process_free, and each pause is then only an
 * interrupt, a wait and a continuation: 9 µs for one thread, 0.6 ms for a hundred. Between pauses the threads run, but
 * the kernel makes a traced thread wait for its tracer when a signal reaches it, when the program stops or continues by
 * job control, and when it ends; so process_serve must be called soon after each SIGCHLD that strobe gets (signalfd),
 * and at least every few milliseconds. A thread blocked in the kernel when it is let go may stay traced until strobe
 * ends.
 */
enum status process_hold(struct process *process, struct error *error) MUST_USE;
void process_let_go(struct process *process);
/* Passes on signals and ends that came since the last pause or call. One cheap call (0.3 µs) when there are none. */
void process_serve(struct process *process);

#endif
