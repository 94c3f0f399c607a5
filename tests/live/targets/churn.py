"""Makes new code all the time and drops the old. Function f123 is in file 123.py, and all its lines are 1230 to 1239."""

import os

TEXT = """{gap}def f{n}(count):
    total = 0
    for i in range(count):
        total += i
        total *= 2
        total -= i
        total &= 1023
    return total
"""

os.write(1, b"ready\n")
number = 0
while True:
    number = number % 900 + 1
    space = {}
    text = TEXT.format(gap="\n" * (number * 10 - 1), n=number)
    exec(compile(text, "/nowhere/%d.py" % number, "exec"), space)
    space["f%d" % number](2000)
    del space
