# SPDX-License-Identifier: Apache-2.0
"""The torch part: libzinf under a torch.nn.Module."""
