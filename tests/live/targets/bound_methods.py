"""Calls of bound methods that are held in variables, and leave an argument out."""


class Worker:
    def step(self, times):
        method = self.burn
        method(times)

    def burn(self, times, x=0):
        for i in range(times):
            x += i
        return x


def drive():
    worker = Worker()
    while True:
        worker.step(3000)


print("ready", flush=True)
drive()
