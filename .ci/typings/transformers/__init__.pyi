"""What this project imports from transformers itself, by the modules that hold it.

The index of transformers imports all of its models, which pyright binds for 16 s.
"""

import transformers.modeling_gguf_pytorch_utils as _gguf
from transformers.generation.configuration_utils import GenerationConfig as GenerationConfig
from transformers.generation.stopping_criteria import StoppingCriteriaList as StoppingCriteriaList
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto.configuration_auto import AutoConfig as AutoConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM as AutoModelForCausalLM
from transformers.models.auto.modeling_auto import AutoModelForMaskedLM as AutoModelForMaskedLM
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast as PreTrainedTokenizerFast
from transformers.trainer import Trainer as Trainer
from transformers.trainer_callback import TrainerCallback as TrainerCallback
from transformers.training_args import TrainingArguments as TrainingArguments

modeling_gguf_pytorch_utils = _gguf
