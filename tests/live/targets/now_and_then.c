/* A thread of C's that has a state of Python's all the time, and is in a Python function now and then, as those of
 * servers that are written in C. Loaded with ctypes; Python's functions are those of the program. */
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
    int calls;
    unsigned pause_us;
} job;

static void *call_now_and_then(void *unused) {
    int state = PyGILState_Ensure();
    void *thread = PyEval_SaveThread();
    sem_post(&job.is_ready);
    sem_wait(&job.may_call);
    for (int i = 0; i < job.calls; i++) {
        usleep(job.pause_us);
        PyEval_RestoreThread(thread);
        (void)PyObject_CallObject(job.callable, 0);
        thread = PyEval_SaveThread();
    }
    PyEval_RestoreThread(thread);
    PyGILState_Release(state);
    return unused;
}

/* Comes back when the thread is there, has its state, and waits. */
void begin(void *callable, int calls, unsigned pause_us) {
    job.callable = callable;
    job.calls = calls;
    job.pause_us = pause_us;
    sem_init(&job.is_ready, 0, 0);
    sem_init(&job.may_call, 0, 0);
    pthread_create(&job.thread, 0, call_now_and_then, 0);
    sem_wait(&job.is_ready);
}

/* Lets it call, and waits for its end. */
void finish(void) {
    sem_post(&job.may_call);
    pthread_join(job.thread, 0);
}
