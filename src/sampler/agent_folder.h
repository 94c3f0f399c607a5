/* The folder in which processes that strobe started leave their regions (wire/region.h). */
#ifndef STROBE_SAMPLER_AGENT_FOLDER_H
#define STROBE_SAMPLER_AGENT_FOLDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

enum { AGENT_NAME_BYTES = 64 };

struct agent_folder {
    char *path;
    int fd; /* locked as long as strobe lives */
    /* At the last search: when the folder had last changed by its file system's clock, and whether that was so short
     * before that a later change could show the same time. */
    struct timespec changed;
    bool was_fresh;
};

/* Makes a folder that only this user can enter, under a name that nobody can guess, where memory serves as disk if
 * there is such a place. Removes those that dead strobes left there. */
enum status agent_folder_open(struct agent_folder *folder, struct error *error) MUST_USE;
/* Removes it and what is in it. */
void agent_folder_close(struct agent_folder *folder);

/* Whether files may have come since the last search: one cheap call. (inotify would tell, but ending it makes a program
 * wait for 20 ms.) */
bool agent_folder_has_changed(const struct agent_folder *folder);
/* Calls `found` with the name of each file that is there. */
void agent_folder_search(struct agent_folder *folder, void (*found)(void *context, const char *name), void *context);

/* Takes "PID-N.region" apart. */
bool agent_folder_parse_name(const char *name, pid_t *pid, uint32_t *incarnation);

#endif
