#include "sampler/agent_control.h"

#include "process/process.h"
#include "sampler/agent_folder.h"
#include "sampler/agent_region.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* For the region that the process has mapped: another of the same name may be that of a program that it was before, or
 * of a process that has the same id in another namespace. */
struct search {
    const struct agent_folder *folder;
    struct process *process;
    enum wire_control control;
    bool found;
    char reason[WIRE_REASON_BYTES]; /* why its agent is off; "": it is not */
};

static void consider(void *context, const char *name) {
    struct search *search = context;
    struct agent_region *region = NULL;
    pid_t pid = 0;
    uint32_t incarnation = 0;
    if (!agent_folder_parse_name(name, &pid, &incarnation) || pid != process_own_pid(search->process) ||
        agent_region_open(search->folder->fd, name, &region) != STATUS_OK)
        return;
    bool is_off = !region->is_whole || agent_region_state(region) == WIRE_OFF;
    if (!region->is_whole || process_maps_file(search->process, region->device, region->inode)) {
        search->found = true;
        (void)snprintf(search->reason, sizeof search->reason, "%s", is_off ? region->facts.reason : "");
        if (!is_off)
            agent_region_control(region, search->control);
    }
    agent_region_close(region);
}

static enum status set_control(struct agent_folder *folder, struct process *process, enum wire_control control,
                               struct error *error) {
    struct search search = {.folder = folder, .process = process, .control = control};
    int pid = (int)process_pid(process);
    agent_folder_search(folder, consider, &search);
    if (!search.found)
        return error_set(error, STATUS_NOT_FOUND, "the agent is not in process %d, or its strobe has ended", pid);
    if (search.reason[0] != '\0')
        return error_set(error, STATUS_NOT_FOUND, "the agent does not work in process %d: %s", pid, search.reason);
    return STATUS_OK;
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
