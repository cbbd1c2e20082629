"""The public datasets by name, with sizes, checksums, addresses, terms and citations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import truepair.data.datasets.parsers as parsers
from truepair.data.datasets.dataset import Addresses, Archive, DataFile, Dataset, Size, Wheel
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import check_choice


def find_dataset(name: str) -> Dataset:
    """The dataset of this name; an unknown name raises an error that lists all names.

    >>> find_dataset("ml-100k").size.pairs
    100000
    """
    return DATASETS[check_choice("dataset", name, DATASETS)]


# --- shared texts ----------------------------------------------------------------------------------

_GROUPLENS = (
    "GroupLens: for research; no redistribution and no commercial use without permission, no claim of "
    "endorsement, and publications must cite it. The README in the archive has the full terms."
)
_HARPER = (
    "F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and Context. ACM "
    "Transactions on Interactive Intelligent Systems 5, 4, Article 19. https://doi.org/10.1145/2827872"
)
_LIGHTGCN = (
    "https://raw.githubusercontent.com/gusye1234/LightGCN-PyTorch/947ca2b3b1d2d3545b114145710cb06c4e57b3d2"
)
_HE = (
    "The split: Xiangnan He, Kuan Deng, Xiang Wang, Yan Li, Yongdong Zhang and Meng Wang. 2020. LightGCN: "
    "Simplifying and Powering Graph Convolution Network for Recommendation. SIGIR."
)
_AMAZON_PAGE = "https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html"
_AMAZON_TERMS = "Amazon reviews: for research; publications must cite it."
_AMAZON = (
    "Ruining He and Julian McAuley. 2016. Ups and Downs: Modeling the Visual Evolution of Fashion Trends "
    "with One-Class Collaborative Filtering. WWW."
)
_S3REC = "https://raw.githubusercontent.com/RUCAIBox/CIKM2020-S3Rec/master/data"
_ZHOU = (
    "The sequences: Kun Zhou, Hui Wang, Wayne Xin Zhao, Yutao Zhu, Sirui Wang, Fuzheng Zhang, Zhongyuan Wang "
    "and Ji-Rong Wen. 2020. S3-Rec: Self-Supervised Learning for Sequential Recommendation with Mutual "
    "Information Maximization. CIKM."
)
_YAHOO_FILE = "ydata-ymusic-rating-study-v1_0-{}.txt"


_optional = partial(DataFile, optional=True)
_in_order = partial(Dataset, columns=("order",))


def _of_split(read_split: Callable[[Path], Split]) -> Callable[[Path], Interactions]:
    return lambda folder: parsers.union(read_split(folder))


# --- the registry ----------------------------------------------------------------------------------

_ALL = (
    Dataset(
        name="ml-100k",
        about="MovieLens 100K: film ratings from 1 to 5, 1997-98",
        size=Size(users=943, items=1_682, pairs=100_000),
        files=(
            DataFile("u.data", "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"),
            _optional("u.item", "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701"),
            _optional("u.user", "f120e114da2e8cf314fd28f99417c94ae9ddf1cb6db8ce0e4b5995d40e90e62c"),
            _optional("u.genre", "9757e0d3e6b298159a80dd48eaf938114690e911e39af97a76949ef1663610bb"),
            DataFile(
                "ml-100k.item",
                "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
                optional=True,
                instead_of="u.item",
            ),
        ),
        page="https://grouplens.org/datasets/movielens/100k/",
        sources=(
            Archive(
                "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
                "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
                "ml-100k",
                ("u.item", "u.user", "u.genre", "u.data"),
            ),
            Wheel(
                "recbole==1.2.1",
                "recbole/dataset_example/ml-100k",
                "ml-100k.inter",
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
                "u.data",
                ("ml-100k.item",),
            ),
        ),
        terms=_GROUPLENS,
        cite=_HARPER,
        read=parsers.ml_100k,
        read_titles=parsers.ml_100k_titles,
        columns=("ratings", "times"),
    ),
    Dataset(
        name="ml-100k-paper-split",
        about="MovieLens 100K in the DPL authors' own split, numbered by first appearance in u.data",
        size=Size(users=943, items=1_682, pairs=100_000),
        files=(
            DataFile("100k_train.csv", "d6827744e2ec2ccd2b7ad50b6b06ad3d7f74aab3b13e18a3dd39ce8b3409947d"),
            DataFile("100k_test.csv", "f3524ba85528edd7e2e3877ac80a3a51344ce32109ccad39e8c4412765c92abd"),
            _optional("item_map.csv", "0535522ee230bc84d834af5b2d8eabf562820887a9b304c5683e9d32441e7c64"),
            _optional("user_map.csv", "59815da2ceb25a3e94fad95b2272485c45b9f305f83e9fa64f72e03f533b8ab4"),
        ),
        page="https://github.com/liubin06/DPL",
        sources=(
            Addresses(
                "https://raw.githubusercontent.com/liubin06/DPL/a5c3c73c969e200d4d9f1b6022992821715c48ad/DPL/data/",
                ("100k_train.csv", "100k_test.csv"),
            ),
        ),
        terms=_GROUPLENS,
        cite=f"{_HARPER}\nThe split: Bin Liu, Qin Luo and Bang Wang. Debiased Pairwise Learning from "
        "Positive-Unlabeled Implicit Feedback.",
        read=_of_split(parsers.paper_split),
        read_split=parsers.paper_split,
        read_titles=parsers.paper_split_titles,
    ),
    Dataset(
        name="ml-1m",
        about="MovieLens 1M: film ratings from 1 to 5, 2000-03",
        size=Size(users=6_040, items=3_706, pairs=1_000_209),
        files=(
            DataFile("ratings.dat"),
            DataFile(
                "ratings_notime.dat",
                "2dad134c8b493373beed8d2a42e18ec2a93606fd957bd76c0bfbdef5c514b985",
                instead_of="ratings.dat",
            ),
            _optional("movies.dat", "0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9"),
            _optional("users.dat", "1dc3a95300cb19f7c10e027daf29b8cdf1d908dab65b5edfb45950aa389a10a3"),
        ),
        page="https://grouplens.org/datasets/movielens/1m/",
        sources=(
            Archive(
                "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
                "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
                "ml-1m",
                ("movies.dat", "users.dat", "ratings.dat"),
            ),
        ),
        terms=_GROUPLENS,
        cite=_HARPER,
        read=parsers.ml_1m,
        read_titles=parsers.ml_1m_titles,
        columns=("ratings", "times"),
    ),
    _in_order(
        name="gowalla",
        about="Gowalla check-ins, in the split of the LightGCN literature",
        size=Size(users=29_858, items=40_981, pairs=1_027_370),
        files=(
            DataFile("train.txt", "7244696fdeb23911319cf7b689f2e15a3c4c92549c873a5677b44e3f13cc3e62"),
            DataFile("test.txt", "099a2a73924e4b754dc6efd730d764f492321b53c38eb93298850c83acf57be3"),
        ),
        page="https://snap.stanford.edu/data/loc-gowalla.html",
        sources=(Addresses(f"{_LIGHTGCN}/data/gowalla/", ("train.txt", "test.txt")),),
        terms="SNAP (Stanford Network Analysis Project): see the page; publications must cite it.",
        cite="Eunjoon Cho, Seth A. Myers and Jure Leskovec. 2011. Friendship and Mobility: User Movement in "
        f"Location-Based Social Networks. KDD.\n{_HE}",
        read=_of_split(parsers.lightgcn_split),
        read_split=parsers.lightgcn_split,
    ),
    _in_order(
        name="yelp2018",
        about="Yelp 2018 visits, in the split of the LightGCN literature",
        size=Size(users=31_668, items=38_048, pairs=1_561_406),
        files=(
            DataFile("train.txt", "1e9568725a9e833d0ac3bae01c94cd95367f73b3bb6104fd26b5f65ea5054093"),
            DataFile("test.txt", "9cd9b37926cd1447a06625ffa7914527573fb097c10cb0bbdb1d1b8ded3742fe"),
        ),
        page="https://www.yelp.com/dataset",
        sources=(Addresses(f"{_LIGHTGCN}/data/yelp2018/", ("train.txt", "test.txt")),),
        terms="Yelp dataset terms of use: academic, no redistribution; see the page.",
        cite=f"Yelp Open Dataset, 2018. https://www.yelp.com/dataset\n{_HE}",
        read=_of_split(parsers.lightgcn_split),
        read_split=parsers.lightgcn_split,
    ),
    _in_order(
        name="ml-1m-sequences",
        about="MovieLens 1M: each user's films in the order of rating, as SASRec uses them",
        size=Size(users=6_040, items=3_416, pairs=999_611),
        files=(DataFile("ml-1m.txt", "3e932f149317fab20f52b9d74a135e6bfab456b2bd5819a6d66f0b6b9df274fb"),),
        shared_folder="sequences",
        page="https://github.com/kang205/SASRec",
        by_hand="SASRec's data/ml-1m.txt has the same sequences, one line for each interaction and with "
        "other numbers. ml-1m.txt has one line for each user: the user, then the items, oldest first, with "
        "the ids of MovieLens.",
        terms=_GROUPLENS,
        cite=f"{_HARPER}\nThe sequences: Wang-Cheng Kang and Julian McAuley. 2018. Self-Attentive Sequential "
        "Recommendation. ICDM.",
        read=lambda folder: parsers.sequences(folder / "ml-1m.txt"),
    ),
    _in_order(
        name="beauty",
        about="Amazon Beauty: each user's reviewed products in order, 5-core",
        size=Size(users=22_363, items=12_101, pairs=198_502),
        files=(DataFile("beauty.txt", "226cce9c3105299ca0db9615d7d3fb32b3175e90da43100ae352599f0f0107b8"),),
        shared_folder="sequences",
        page=_AMAZON_PAGE,
        sources=(Addresses(f"{_S3REC}/Beauty.txt", ("beauty.txt",)),),
        terms=_AMAZON_TERMS,
        cite=f"{_AMAZON}\n{_ZHOU}",
        read=lambda folder: parsers.sequences(folder / "beauty.txt"),
    ),
    _in_order(
        name="sports",
        about="Amazon Sports and Outdoors: each user's reviewed products in order, 5-core",
        size=Size(users=35_598, items=18_357, pairs=296_337),
        files=(DataFile("sports.txt", "2a095e0648872beb9982408958290f5d655db5be2911c3756b5446de9f0b8de2"),),
        shared_folder="sequences",
        page=_AMAZON_PAGE,
        sources=(Addresses(f"{_S3REC}/Sports_and_Outdoors.txt", ("sports.txt",)),),
        terms=_AMAZON_TERMS,
        cite=f"{_AMAZON}\n{_ZHOU}",
        read=lambda folder: parsers.sequences(folder / "sports.txt"),
    ),
    Dataset(
        name="grocery",
        about="Amazon Grocery and Gourmet Food: reviewed products with times, 2000-14",
        size=Size(users=14_681, items=8_687, pairs=121_892),
        files=(DataFile("train.csv", "75847958fbcfec35dd0a20bda43432c22a5d7e5b5fe571fef0b25ff580b475f4"),),
        page=_AMAZON_PAGE,
        sources=(
            Addresses(
                "https://raw.githubusercontent.com/THUwangcy/ReChorus/e74389752d7b37120e985229d26693ec00b909e5/"
                "data/Grocery_and_Gourmet_Food/",
                ("train.csv",),
            ),
        ),
        terms=_AMAZON_TERMS,
        cite=f"{_AMAZON}\nThe file, the training part of ReChorus: Chenyang Wang, Min Zhang, Weizhi Ma, "
        "Yiqun Liu and Shaoping Ma. 2020. Make It a Chorus: Knowledge- and Time-aware Item Modeling for "
        "Sequential Recommendation. SIGIR.",
        read=parsers.grocery,
        columns=("times",),
    ),
    Dataset(
        name="coat",
        about="Coat shopping: per user 24 ratings of self-chosen items, and 16 of random items as a test",
        size=Size(users=290, items=300, pairs=11_234),
        files=(
            DataFile("train.ascii", "a87bd9e7eaf3b89f976df3f25d4aa5d5d871be8a00b58947df9e6e015559bd37"),
            DataFile("test.ascii", "de6714ab105a5e0be8166be7fd313901b29f9a09c3bea307901457d1d71847e6"),
        ),
        page="https://www.cs.cornell.edu/~schnabts/mnar/",
        sources=(
            # the checksums of the files are known, that of the archive is not
            Archive(
                "https://www.cs.cornell.edu/~schnabts/mnar/coat.zip",
                None,
                "coat",
                ("train.ascii", "test.ascii"),
            ),
        ),
        terms="For research; see the page.",
        cite="Tobias Schnabel, Adith Swaminathan, Ashudeep Singh, Navin Chandak and Thorsten Joachims. 2016. "
        "Recommendations as Treatments: Debiasing Learning and Evaluation. ICML.",
        read=_of_split(parsers.coat_split),
        read_split=parsers.coat_split,
    ),
    Dataset(
        name="kuairec",
        about="KuaiRec's fully observed block of short videos: every label is known",
        size=Size(users=1_411, items=3_327, pairs=217_175),
        files=(
            DataFile(
                "small_matrix_positives.csv",
                "4a0588c8a9f468b07b682de33b48e8af9929ae96bd7870e44dbe661d0ccffbbd",
            ),
            DataFile(
                "small_matrix_items.txt", "60678037ce60a6f4f2d699506dcecc48064472d096379c27ecef8ce200d435ff"
            ),
        ),
        page="https://kuairec.com",
        by_hand="KuaiRec is one large archive; its small_matrix.csv has a watch_ratio for every pair. "
        "small_matrix_positives.csv (`user,item`) has the 217,175 pairs whose watch_ratio is 2 or more, "
        "sorted, and small_matrix_items.txt the 3,327 video ids, one per line, sorted.",
        terms="CC BY-SA 4.0.",
        cite="Chongming Gao, Shijun Li, Wenqiang Lei, Jiawei Chen, Biao Li, Peng Jiang, Xiangnan He, Jiaxin "
        "Mao and Tat-Seng Chua. 2022. KuaiRec: A Fully-Observed Dataset and Insights for Evaluating "
        "Recommender Systems. CIKM. https://doi.org/10.1145/3511808.3557220",
        read=parsers.kuairec,
        columns=("truth",),
    ),
    Dataset(
        name="jester5k",
        about="Jester: 5,000 users' ratings of 100 jokes, -10 to 10; 1,473 users rated all of them",
        size=Size(users=5_000, items=100, pairs=363_209),
        files=(DataFile("jester5k.npz", "d0b1307f3749acc5b6c952ebca75fdf354f1d84472715f964bda356a85f8bb9f"),),
        page="https://eigentaste.berkeley.edu/dataset/",
        by_hand="Jester5k is a sample of Jester that comes with the R package recommenderlab; jester5k.npz "
        "contains its 5,000 x 100 matrix as SciPy's CSC arrays data, indices, indptr and shape.",
        terms="For research; publications must cite it.",
        cite="Ken Goldberg, Theresa Roeder, Dhruv Gupta and Chris Perkins. 2001. Eigentaste: A Constant Time "
        "Collaborative Filtering Algorithm. Information Retrieval 4, 2, 133-151.",
        read=parsers.jester5k,
        columns=("ratings", "truth"),
    ),
    Dataset(
        name="yahoo-r3",
        about="Yahoo! R3: ratings of self-chosen songs, and of random songs as a test; users 1 to 5,400",
        size=Size(users=5_400, items=1_000, pairs=183_179),
        files=(DataFile(_YAHOO_FILE.format("train")), DataFile(_YAHOO_FILE.format("test"))),
        page="https://webscope.sandbox.yahoo.com/catalog.php?datatype=r",
        by_hand="Yahoo! Webscope gives dataset R3 to researchers who sign its data sharing agreement.",
        terms="Yahoo! Webscope: academic, under a signed agreement; no redistribution.",
        cite="Benjamin M. Marlin and Richard S. Zemel. 2009. Collaborative Prediction and Ranking with "
        "Non-Random Missing Data. RecSys.",
        read=parsers.yahoo_r3,
        read_split=parsers.yahoo_r3_split,
    ),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
"""The registry: command-line choices, error messages, tables and tests derive from it."""
