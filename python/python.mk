# SPDX-License-Identifier: Apache-2.0
# The Python package: tests, style, installing. Included by the Makefile.

# Debian's interpreter: its torch is what the light tests use.
PYTHON ?= /usr/bin/python3
PYTHON_SOURCES := $(shell find python/zinf -name '*.py' -o -name py.typed)
# A folder with ruff and mypy.
PYTHON_TOOLS ?= $(HOME)/.cache/zinf/hf-env/bin

.PHONY: check-python lint-python install-python
# T: names of files, without them all.
check-python: all $(FAKE_CUDA) ## the light tests of the Python package [PYTHON=/usr/bin/python3 T='test_session test_config']
	@if [ -x $(PYTHON) ]; then \
		ZINF_BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1 $(PYTHON) tests/python/run.py $(T); \
	else \
		echo "check-python: skipped: there is no $(PYTHON)"; echo "0 passed, 0 failed, 1 skipped"; \
	fi

lint-python: ## style and types of the Python package, where ruff and mypy are [PYTHON_TOOLS=DIR]
	@if [ -x $(PYTHON_TOOLS)/ruff ] && [ -x $(PYTHON_TOOLS)/mypy ]; then \
		$(PYTHON_TOOLS)/ruff check -q --config python/pyproject.toml python tests/python && \
		$(PYTHON_TOOLS)/ruff format -q --check --config python/pyproject.toml python tests/python && \
		cd python && $(PYTHON_TOOLS)/mypy --no-error-summary zinf && echo "lint-python: ok"; \
	else echo "lint-python: not run, no ruff and mypy in $(PYTHON_TOOLS)"; fi

# Debian's python3 finds packages in /usr/lib/python3/dist-packages. Below another prefix it looks only
# in lib/python3.X/dist-packages, where a line leads to the package.
PYTHONDIR ?= $(PREFIX)/lib/python3/dist-packages
install: install-python
install-python:
	@cd python && for file in $(patsubst python/%,%,$(PYTHON_SOURCES)); do \
		install -D -m 644 $$file $(DESTDIR)$(PYTHONDIR)/$$file || exit 1; \
	done
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || exit 0; \
	if [ $(PREFIX) != /usr ]; then \
		install -d $(DESTDIR)$(PREFIX)/lib/python$$version/dist-packages && \
		echo $(PYTHONDIR) >$(DESTDIR)$(PREFIX)/lib/python$$version/dist-packages/zinf.pth; \
	fi
