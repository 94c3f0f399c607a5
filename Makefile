# Thin: each goal installs what it needs (tools/install-deps) and leaves the building to Meson.
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
PYTEST_ARGS ?=
# The folders by name: pytest prints the list of interpreters only when it knows tests/live from the start.
PYTEST = .venv/bin/python -m pytest -c tests/pytest.ini tests/live tests/export tests/tools

.PHONY: all demo test lint sanitize fuzz bench install clean
all: build/build.ninja
	meson compile -C build

demo: all
	tools/demo build/strobe

test: all
	tools/install-deps test
	meson test -C build --no-rebuild --print-errorlogs
	STROBE=build/strobe $(PYTEST) --junit-xml=build/pytest.xml $(PYTEST_ARGS)

lint:
	tools/install-deps lint
	tools/lint

# strobe's unit and live tests with a strobe built under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize:
	tools/install-deps test
	test -f build-sanitize/build.ninja || CC=gcc meson setup build-sanitize \
	    -Db_sanitize=address,undefined -Dc_args=-fno-sanitize-recover=all -Dbuildtype=debugoptimized
	meson compile -C build-sanitize
	meson test -C build-sanitize --no-rebuild --print-errorlogs
	STROBE=build-sanitize/strobe $(PYTEST) --junit-xml=build-sanitize/pytest.xml $(PYTEST_ARGS)

# Each fuzz/fuzz_NAME.c for FUZZ_SECONDS, beginning with fuzz/corpus/NAME/. Findings land in build-fuzz/.
fuzz:
	tools/install-deps fuzz
	tools/fuzz $(FUZZ_SECONDS)

bench: all
	tools/install-deps bench
	bench/run

# A release build of its own, so that `make install` leaves build/ alone. DESTDIR is obeyed.
install:
	tools/install-deps build
	test -f build-install/build.ninja || meson setup build-install --buildtype=release
	meson configure build-install --prefix=$(abspath $(PREFIX))
	meson install -C build-install

clean:
	rm -rf build build-sanitize build-fuzz build-clang build-gcc build-install

build/build.ninja:
	tools/install-deps build
	meson setup build
