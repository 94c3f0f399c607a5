/* While threads are being seized: waits for those that end meanwhile. Internal to this folder. */
#ifndef STROBE_PROCESS_LINUX_REAPER_H
#define STROBE_PROCESS_LINUX_REAPER_H

#include "process/linux/linux_process.h"

#include <pthread.h>

/* In the caller's memory, zeroed before. */
struct reaper {
    const struct process *process;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool running;
    bool done;
};

/* Starts a thread of strobe's that does so; nothing when it runs already. */
enum status reaper_start(struct reaper *reaper, const struct process *process, struct error *error) MUST_USE;
/* Ends it, if it runs. */
void reaper_stop(struct reaper *reaper);

#endif
