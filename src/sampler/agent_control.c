#include "sampler/agent_control.h"

#include "process/process.h"
#include "sampler/agent_folder.h"
#include "sampler/agent_region.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The last of the regions that the process has made: after an exec the others are of what it was. */
struct search {
    pid_t own_pid;
    char name[AGENT_NAME_BYTES];
    uint32_t incarnation;
};

static void consider(void *context, const char *name) {
    struct search *search = context;
    pid_t pid = 0;
    uint32_t incarnation = 0;
    if (!agent_folder_parse_name(name, &pid, &incarnation) || pid != search->own_pid)
        return;
    if (search->name[0] != '\0' && incarnation < search->incarnation)
        return;
    (void)snprintf(search->name, sizeof search->name, "%s", name);
    search->incarnation = incarnation;
}

static enum status set_control(struct agent_folder *folder, const struct process *process, enum wire_control control,
                               struct error *error) {
    struct search search = {.own_pid = process_own_pid(process)};
    struct agent_region *region = NULL;
    int pid = (int)process_pid(process);
    agent_folder_search(folder, consider, &search);
    if (search.name[0] == '\0' || agent_region_open(folder->fd, search.name, &region) != STATUS_OK)
        return error_set(error, STATUS_NOT_FOUND, "the agent is not in process %d, or its strobe has ended", pid);
    enum status status = STATUS_OK;
    if (!region->is_whole || agent_region_state(region) == WIRE_OFF)
        status =
            error_set(error, STATUS_NOT_FOUND, "the agent does not work in process %d: %s", pid, region->facts.reason);
    else
        agent_region_control(region, control);
    agent_region_close(region);
    return status;
}

enum status agent_control(pid_t pid, enum wire_control control, struct error *error) {
    struct process *process = NULL;
    char *path = NULL;
    TRY(process_open(pid, &process, error));
    enum status status = process_read_variable(process, WIRE_ENVIRONMENT_FOLDER, &path);
    struct agent_folder folder = {.fd = -1};
    if (status == STATUS_OK)
        folder.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (status == STATUS_NOT_FOUND)
        (void)error_set(error, status, "process %d does not run under 'strobe run'", (int)pid);
    else if (status != STATUS_OK)
        (void)error_set(error, status, "cannot read the environment of process %d: %s", (int)pid, status_name(status));
    else if (folder.fd < 0)
        status = error_set(error, STATUS_NOT_FOUND, "the strobe that runs process %d has ended", (int)pid);
    else
        status = set_control(&folder, process, control, error);
    if (folder.fd >= 0)
        (void)close(folder.fd);
    free(path);
    process_free(process);
    return status;
}
