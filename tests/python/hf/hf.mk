# SPDX-License-Identifier: Apache-2.0
# The full tests of the Python package, with PyPI's torch, transformers and accelerate. Included by the Makefile.

# One environment for all clones. Its copy of requirements.txt says what is installed: the contents are compared, as
# the file of a new clone is always newer.
HF_ENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/zinf/hf-env
HF_REQUIREMENTS := tests/python/hf/requirements.txt

.PHONY: check-hf hf-env demo-torch
hf-env:
	$(Q)cmp -s $(HF_REQUIREMENTS) $(HF_ENV)/requirements.txt || { \
		echo "hf-env: installing torch, transformers, accelerate and others into $(HF_ENV): 5.6 GB" && \
		python3 -m venv $(HF_ENV) && $(HF_ENV)/bin/pip install -q -r $(HF_REQUIREMENTS) && \
		cp $(HF_REQUIREMENTS) $(HF_ENV)/requirements.txt; }

# T: names of test files, without them all.
check-hf: all hf-env $(FAKE_CUDA) ## the Python package under Hugging Face's Trainer and Accelerate; installs 5.6 GB once [T='test_trainer test_resume']
	$(Q)$(MAKE) --no-print-directory lint-python PYTHON_TOOLS=$(HF_ENV)/bin
	$(Q)ZINF_BUILD=$(abspath $(BUILD)) tests/python/hf/run $(HF_ENV)/bin/python $(T)

demo-torch: ## train a GPT-2 with the Trainer of Hugging Face, everything on NVMe [PYTHON=path; else installs 5.6 GB]
	@tools/deps build
	@$(MAKE) --no-print-directory -s -j2 all
	@examples/torch/demo $(HF_ENV)
