/* A thread of C's that is in a Python function now and then: one that keeps its state of Python's all the time, as
 * those of servers that are written in C, or one that makes a state for each call, as those that call back from
 * libraries. Loaded with ctypes; Python's functions are those of the program. */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

int PyGILState_Ensure(void);
void PyGILState_Release(int state);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *thread);
void *PyObject_CallObject(void *callable, void *arguments);

static struct {
    pthread_t thread;
    sem_t is_ready;
    sem_t may_call;
    void *callable;
    int keeps_state;
    int calls;
    unsigned pause_us;
} job;

static void call_now_and_then(void) {
    sem_post(&job.is_ready);
    sem_wait(&job.may_call);
    for (int i = 0; i < job.calls; i++) {
        usleep(job.pause_us);
        int state = PyGILState_Ensure();
        (void)PyObject_CallObject(job.callable, 0);
        PyGILState_Release(state);
    }
}

static void *run(void *unused) {
    if (!job.keeps_state) {
        call_now_and_then();
        return unused;
    }
    int state = PyGILState_Ensure();
    void *thread = PyEval_SaveThread();
    call_now_and_then();
    PyEval_RestoreThread(thread);
    PyGILState_Release(state);
    return unused;
}

/* Comes back when the thread is there and waits, with its state if it keeps one. */
void begin(void *callable, int keeps_state, int calls, unsigned pause_us) {
    job.callable = callable;
    job.keeps_state = keeps_state;
    job.calls = calls;
    job.pause_us = pause_us;
    sem_init(&job.is_ready, 0, 0);
    sem_init(&job.may_call, 0, 0);
    pthread_create(&job.thread, 0, run, 0);
    sem_wait(&job.is_ready);
}

/* Lets it call, and waits for its end. */
void finish(void) {
    sem_post(&job.may_call);
    pthread_join(job.thread, 0);
}
